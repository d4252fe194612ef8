"""What a cluster costs, on raylets of this machine: python benchmarks/cluster.py

cpu, wall     one site with 2 workers against a Pool with 2 workers, in turns
fragment      the overhead of a fragment of 1 MB: an env that takes no time
weights       50 MB of weights to three nodes
nodes         raylets against a Pool with as many workers, Ant: two of one core each

A fragment of these takes about a second, as the guide's sizing asks for.

On a larger machine, only the last: --nodes 4 --cpus 4 --envs 256
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np
import psutil

import corral

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))
import raylets

SLOTS = 64
ROWS = {"CartPole-v1": 3072, "Ant-v5": 256}


class Drawn:
    """Actions from the slot's generator; no framework."""

    def __init__(self, space):
        self.space = space

    def act(self, step, carry, rng):
        if isinstance(self.space, gymnasium.spaces.Discrete):
            return corral.Decision((rng.random()[:, 0] < 0.5).astype(np.int64))
        numbers = rng.random(int(np.prod(self.space.shape))) * 2 - 1
        return corral.Decision(numbers.reshape(-1, *self.space.shape).astype("f4"))


class Heavy(Drawn):
    """Has 50 MB of weights."""

    def __init__(self, space):
        super().__init__(space)
        self.arrays = {f"w{n}": np.zeros(1_310_720, np.float32) for n in range(10)}

    def weights(self):
        return self.arrays

    def load_weights(self, weights):
        self.arrays = dict(weights)


class Nothing(gymnasium.Env):
    """Takes no time, so that what is left is overhead."""

    observation_space = gymnasium.spaces.Box(-1, 1, (250,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    seen = np.zeros(250, np.float32)

    def reset(self, *, seed=None, options=None):
        return self.seen, {}

    def step(self, action):
        return self.seen, 0.0, False, False, {}


class Meter:
    """Seconds and CPU seconds of a collector, by fragment."""

    def __init__(self, pool, policy, rows, pids):
        self.collector = corral.Collector(pool, policy, **self.acting(pool))
        self.rows, self.pids, self.slots = rows, pids, pool.num_envs
        self.wall, self.cpu = [], []
        self.collector.collect(rows)

    @staticmethod
    def acting(pool):
        return {} if isinstance(pool, corral.Cluster) else {"act_in": "workers"}

    def run(self):
        before, began = self.used(), time.perf_counter()
        self.collector.collect(self.rows)
        seconds, steps = time.perf_counter() - began, self.rows * self.slots
        self.wall.append(seconds / steps)
        self.cpu.append((self.used() - before) / steps)

    def used(self):
        found = 0.0
        for pid in self.pids:
            times = psutil.Process(pid).cpu_times()
            found += times.user + times.system
        return found


def tree(pid):
    process = psutil.Process(pid)
    return [pid, *(one.pid for one in process.children(recursive=True))]


def pairs(env, address, rounds, slots=SLOTS, **placed):
    """Sites against a pool, in turns; both have the same number of workers.

    A fragment has as many steps per core as one of 64 slots on two cores.
    """
    options = dict(seed=0, isolation="shared", infos="final")
    asked = dict(address=address, **placed, **options)
    workers = placed["sites"] * placed["cpus_per_site"]
    rows = max(1, ROWS[env] * SLOTS * workers // (2 * slots))
    own = psutil.Process().pid
    with (
        corral.Cluster(env, slots, **asked) as cluster,
        corral.Pool(env, slots, backend="process", workers=workers, **options) as pool,
    ):
        policy = Drawn(pool.spec.action_space)
        sites = [one for site in cluster.stats().sites for one in tree(site.pid)]
        pids = [one.pid for one in pool.stats().workers]
        there = Meter(cluster, policy, rows, [own, *sites])
        here = Meter(pool, policy, rows, [own, *pids])
        for _ in range(rounds):
            here.run()
            there.run()
    ratios = [a / b for a, b in zip(here.wall, there.wall, strict=True)]
    cpu = sum(there.cpu) / sum(here.cpu)
    return statistics.median(ratios), cpu


def fragment(address, rounds):
    """Seconds of a fragment of 1 MB more than the pool of its site takes."""
    options = dict(seed=0, isolation="shared", infos="none")
    asked = dict(address=address, sites=1, cpus_per_site=1, **options)
    with (
        corral.Cluster(Nothing, 16, **asked) as cluster,
        corral.Pool(Nothing, 16, backend="process", workers=1, **options) as pool,
    ):
        policy, rows = Drawn(pool.spec.action_space), 64
        there, here = (Meter(one, policy, rows, []) for one in (cluster, pool))
        for _ in range(rounds):
            here.run()
            there.run()
    extra = [(a - b) * rows * 16 for a, b in zip(there.wall, here.wall, strict=True)]
    return statistics.median(extra)


def weights(address, rounds):
    """Seconds until three sites act with 50 MB of new weights."""
    asked = dict(address=address, sites=3, cpus_per_site=1, isolation="shared")
    with corral.Cluster(Nothing, 3, seed=0, infos="none", **asked) as cluster:
        policy = Heavy(cluster.spec.action_space)
        collector = corral.Collector(cluster, policy)
        collector.collect(1)
        took, idle = [], []
        for _ in range(rounds):
            began = time.perf_counter()
            collector.collect(1)
            idle.append(time.perf_counter() - began)
            policy.arrays = {name: one + 1 for name, one in policy.arrays.items()}
            began = time.perf_counter()
            collector.collect(1)
            took.append(time.perf_counter() - began)
    return statistics.median(took) - statistics.median(idle)


def nodes(count, cpus, slots, rounds):
    """Raylets of so many cores each against one pool of all these cores."""
    with raylets.raylets(count, cpus) as ray:
        placed = dict(sites=count, cpus_per_site=cpus)
        wall, cpu = pairs("Ant-v5", ray.address, rounds, slots, **placed)
    print(
        f"{count} nodes, {count * cpus} cores in all, Ant x{slots}: {wall:.2f} of a "
        f"pool with {count * cpus} workers, CPU per step {cpu:.3f}x"
    )


def small_parts(rounds):
    """What one site costs, a fragment, and weights."""
    with raylets.raylets(count=1, cpus=2) as ray:
        for env in ROWS:
            wall, cpu = pairs(env, ray.address, rounds, sites=1, cpus_per_site=2)
            print(f"{env}: wall ratio {wall:.2f}, CPU per step {cpu:.3f}x", flush=True)
        extra = fragment(ray.address, rounds)
        print(f"fragment of 1 MB: {1e3 * extra:.1f} ms more than here", flush=True)
    with raylets.raylets(count=3, cpus=1) as ray:
        seconds = weights(ray.address, rounds)
        print(f"50 MB of weights to three nodes: {1e3 * seconds:.0f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--nodes", type=int, help="only this: so many raylets")
    parser.add_argument("--cpus", type=int, default=1, help="cores of each of them")
    parser.add_argument("--envs", type=int, default=SLOTS, help="Ants of all together")
    asked = parser.parse_args()
    if asked.nodes is None:
        small_parts(asked.rounds)
    nodes(asked.nodes or 2, asked.cpus, asked.envs, asked.rounds)


if __name__ == "__main__":
    main()
