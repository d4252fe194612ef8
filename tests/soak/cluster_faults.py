"""Faults of a cluster, one after the other: `python -m tests.soak.cluster_faults`.

Each rollout has one: an actor or a raylet is killed, an actor is stopped. After each,
the rows of all other sites have to be those of a pool without faults, and no process of
the lost site may be left. At the end nothing of the cluster may be left.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import corral

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

ROWS, SITES, SLOTS = 60, 3, 6
KINDS = ("kill an actor", "kill an actor", "stop an actor", "kill a raylet")


def main() -> None:
    """Run as many faults as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    raylets = importlib.import_module("raylets")
    with raylets.raylets() as ray:
        seconds = soak(ray, asked.faults, random.Random(asked.seed))
    late = sorted(seconds)[-3:]
    print(f"{asked.faults} faults; the slowest rollouts took {late} s")


def soak(ray: Any, count: int, draw: random.Random) -> list[float]:
    """Disturb a site in every rollout; returns the seconds of each."""
    on_ray = importlib.import_module("on_ray")
    walker = importlib.import_module("scenes").Walker()

    asked = {"sites": SITES, "on_node_loss": "restart", "fragment_timeout": 5.0}
    limits = {"max_restarts": 10**6, "restarts_per_minute": 10**6}
    took = []
    with on_ray.cluster_at(ray, on_ray.Slow, SLOTS, **asked, **limits) as cluster:
        collector = corral.Collector(cluster, walker)
        collector.collect(2)
        for number in range(count):
            collector.end_episodes(number)
            began = time.monotonic()
            one(ray, cluster, collector, number, draw)
            took.append(round(time.monotonic() - began, 1))
        assert cluster.fault_count >= count, (cluster.fault_count, count)
    return took


def one(
    ray: Any, cluster: Any, collector: Any, number: int, draw: random.Random
) -> None:
    """One fault, and what has to be true after it."""
    raylets = importlib.import_module("raylets")

    site, kind = draw.randrange(SITES), draw.choice(KINDS)
    sites = cluster.stats().sites
    pid = sites[site].pid
    tree = raylets.tree_of(pid)

    def strike() -> None:
        if kind == "kill a raylet":
            raylets.raylet_of(pid).kill()
        else:
            stop = kind == "stop an actor"
            os.kill(pid, raylets.STOP if stop else raylets.KILL)

    striker = threading.Timer(draw.uniform(0.02, 0.15), strike)
    striker.start()
    rollout = collector.collect(ROWS)
    striker.join()
    lost = {fault.site for fault in rollout.faults}
    with_raylet = {one.site for one in sites if one.node == sites[site].node}
    assert lost == (with_raylet if kind == "kill a raylet" else {site}), rollout.faults
    if len(lost) < SITES:  # else the next episodes were collected instead
        slots = {slot for one in lost for slot in cluster.shards[one]}
        assert not rollout.valid[:, sorted(slots)].any()
        check_others(rollout, number, set(range(SLOTS)) - slots)
    gone = raylets.seconds_until_gone(tree, 20.0)
    print(f"{number}: {kind}, gone after {gone:.2f} s more", flush=True)
    if kind == "kill a raylet":
        raylets.add_node(ray)


def check_others(rollout: Any, number: int, slots: set[int]) -> None:
    """What had come back is what a pool without faults collects."""
    on_ray, scenes = map(importlib.import_module, ("on_ray", "scenes"))
    assert_equal = scenes.assert_equal

    with corral.Pool(scenes.Rooms, SLOTS, backend="serial", **on_ray.ROOMS) as pool:
        collector = corral.Collector(pool, scenes.Walker())
        collector.end_episodes(number)
        theirs = collector.collect(ROWS)
    for slot in slots:
        assert_equal(rollout.action[:, slot], theirs.action[:, slot])
        assert_equal(rollout.reward[:, slot], theirs.reward[:, slot])


if __name__ == "__main__":
    main()
