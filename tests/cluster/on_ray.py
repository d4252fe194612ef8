"""What a cluster promises, on real raylets: `python on_ray.py NAME ...` in a process.

Each function is one sentence. The first that fails ends with its traceback.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import raylets
from scenes import (
    Rooms,
    Tilt,
    Walker,
    assert_equal,
    assert_same_rollouts,
    collected,
    draw_task,
)

import corral
from corral.errors import ClusterError, FaultError, NodeLost, OptionError

ROOMS = dict(sample_task=draw_task, infos="final", isolation="shared", seed=0)


class Slow(Rooms):
    """A fragment takes long enough to be hit in its middle."""

    def step(self, action):
        time.sleep(0.004)
        return super().step(action)


def cluster_at(ray, env, slots, **options):
    options = {"cpus_per_site": 1, "address": ray.address, **ROOMS, **options}
    return corral.Cluster(env, slots, **options)


def local(policy, env, slots, **options):
    with corral.Pool(env, slots, backend="serial", **{**ROOMS, **options}) as pool:
        return collected(pool, policy)


def the_numbers_are_those_of_one_machine(ray, counts=(1, 3)):
    plain = dict(sample_task=None)
    with cluster_at(ray, "CartPole-v1", 7, sites=2, **plain) as cluster:
        ours = collected(cluster, Tilt())
    assert_same_rollouts(ours, local(Tilt(), "CartPole-v1", 7, **plain))
    for sites in counts:
        with cluster_at(ray, Rooms, 7, sites=sites) as cluster:
            ours = collected(cluster, Walker())
            if sites == counts[-1]:
                episodes_and_maps_too(cluster)
        assert_same_rollouts(ours, local(Walker(), Rooms, 7))


def episodes_and_maps_too(cluster):
    with corral.Pool(Rooms, 4, backend="serial", **ROOMS) as pool:
        theirs = corral.run_episodes(pool, Walker(), episodes=11)
        scores = corral.evaluate(Walker(), pool, episodes=5, seed=2)
    ours = corral.run_episodes(cluster, Walker(), episodes=11)
    for one, other in zip(ours, theirs, strict=True):
        for name in ("item", "seed", "task", "return_", "obs", "action", "reward"):
            assert_equal(getattr(one, name), getattr(other, name), name)
    evaluated = corral.evaluate(Walker(), cluster=cluster, episodes=5, seed=2)
    assert_equal(evaluated.returns, scores.returns)
    squares = corral.map(lambda x: x * x, range(9), cluster=cluster)
    assert squares == [x * x for x in range(9)]


def disturbed(ray, disturb, **options):
    """Collect, disturb site 1 in the middle of a fragment, collect twice more."""
    options = {"sites": 3, "on_node_loss": "restart", **options}
    with cluster_at(ray, Slow, 6, **options) as cluster:
        collector = corral.Collector(cluster, Walker())
        first = collector.collect(5)
        pid = cluster.stats().sites[1].pid
        tree, told = raylets.tree_of(pid), {}

        def strike():
            told["began"] = time.monotonic()
            disturb(pid)
            told["gone"] = raylets.seconds_until_gone(tree, 20.0)

        striker = threading.Timer(0.3, strike)
        striker.start()
        second = collector.collect(150)
        told["again"] = time.monotonic() - told["began"]
        striker.join()
        third = collector.collect(5)
        (fault,) = cluster.faults
    assert (fault.kind, fault.site) == ("node", 1) and fault.node, fault
    assert not second.valid[:, 2:4].any() and second.valid[:, 4:].any()
    check_as_local(first, second, third)
    print(disturb.__name__, {key: round(value, 2) for key, value in told.items()})
    return told


def check_as_local(first, second, third):
    """A pool whose slots 2 and 3 begin again with the root after a loss."""
    from corral.engine.worker.seeds import SeedDomain, episode_seed

    others = [0, 1, 4, 5]
    with corral.Pool(Rooms, 6, backend="serial", **ROOMS) as pool:
        collector = corral.Collector(pool, Walker())
        for ours, rows in ((first, 5), (second, 150), (third, 5)):
            theirs = collector.collect(rows)
            assert_equal(ours.action[:, others], theirs.action[:, others])
            assert_equal(ours.reward[:, others], theirs.reward[:, others])
    again = episode_seed(0, 1, SeedDomain.RESTARTS)
    with corral.Pool(Rooms, 6, backend="serial", **{**ROOMS, "seed": again}) as pool:
        theirs = corral.Collector(pool, Walker()).collect(5)
    assert_equal(third.action[:, 2:4], theirs.action[:, 2:4])


def a_killed_actor_is_started_again(ray):
    def kill_actor(pid):
        os.kill(pid, raylets.KILL)

    told = disturbed(ray, kill_actor)
    assert told["gone"] < 1.0, told


def a_stopped_actor_is_ended_at_the_deadline(ray):
    def stop_actor(pid):
        os.kill(pid, raylets.STOP)

    disturbed(ray, stop_actor, fragment_timeout=3.0)


def a_killed_raylet_takes_its_processes_along(ray):
    def kill_raylet(pid):
        raylets.raylet_of(pid).kill()

    told = disturbed(ray, kill_raylet)
    assert told["gone"] < 1.0, told
    raylets.add_node(ray)


def a_loss_is_an_error_with_what_had_come_back(ray):
    with cluster_at(ray, Slow, 6, sites=3) as cluster:
        collector = corral.Collector(cluster, Walker())
        collector.collect(2)
        pid = cluster.stats().sites[1].pid
        threading.Timer(0.3, os.kill, (pid, raylets.KILL)).start()
        try:
            collector.collect(150)
            raise AssertionError("it was lost")
        except NodeLost as error:
            assert error.fault.site == 1, error
            assert error.rollout.valid[:, 4:].any()
            assert not error.rollout.valid[:, 2:4].any()


def a_node_that_joins_is_used_after_the_next_end_of_episodes(ray):
    with cluster_at(ray, Rooms, 12) as cluster:
        before = len(cluster.shards)
        collector = corral.Collector(cluster, Walker())
        collector.collect(2)
        known = len(cluster.stats().nodes)
        node = raylets.add_node(ray)
        while len(cluster.stats().nodes) == known:
            pass
        collector.end_episodes(1)
        collector.collect(2)
        assert len(cluster.shards) == before + 2, (before, cluster.shards)
    ray.remove_node(node)


DRIVER = """
import on_ray, corral, sys, time
class Ray: address = "{address}"
cluster = on_ray.cluster_at(Ray, on_ray.Slow, 6, sites=3)
collector = corral.Collector(cluster, on_ray.Walker())
collector.collect(2)
print(*[site.pid for site in cluster.stats().sites], flush=True)
collector.collect(100000)
"""


def a_killed_driver_leaves_nothing(ray):
    with tempfile.TemporaryDirectory() as folder:
        driver = raylets.run_script(DRIVER.format(address=ray.address), Path(folder))
        pids = [int(one) for one in driver.stdout.readline().split()]
        trees = [one for pid in pids for one in raylets.tree_of(pid)]
        assert len(trees) >= 6, trees
        time.sleep(0.3)
        driver.kill()
        seconds = raylets.seconds_until_gone(trees)
        driver.wait()
        driver.stdout.close()
        print("a killed driver's sites were gone after", round(seconds, 2), "s")


def modules_travel_in_a_working_dir(ray):
    with tempfile.TemporaryDirectory() as folder:
        text = "import gymnasium\ndef make(): return gymnasium.make('CartPole-v1')\n"
        (Path(folder) / "sent_along.py").write_text(text)
        sys.path.insert(0, folder)
        options = dict(sites=1, working_dir=folder, sample_task=None)
        with cluster_at(ray, "sent_along:make", 2, **options) as cluster:
            assert cluster.importable("sent_along")
            ours = collected(cluster, Tilt())
        assert_same_rollouts(ours, local(Tilt(), "CartPole-v1", 2, sample_task=None))


def refused(kind, call, *words):
    """One clear error, and soon: 10 s where the cores are free, and Ray's is 60 s."""
    began = time.monotonic()
    try:
        call().close()
    except kind as error:
        seconds, text = time.monotonic() - began, str(error)
        assert all(word in text for word in words), text
        assert seconds < 30.0, (seconds, text)
        print(f"[{seconds:.1f} s] {text}\n")
        return
    raise AssertionError(f"not refused: {words}")


class Elsewhere:
    """Cannot be opened on a node."""

    def __reduce__(self):
        return _import_missing, ()


def _import_missing():
    import a_module_of_this_machine_alone  # noqa: F401


def bad_input_is_refused_in_seconds(ray):
    def make(**options):
        env = options.pop("env", Rooms)
        return lambda: cluster_at(ray, env, 4, **options)

    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    silent = f"127.0.0.1:{port}"
    refused(ClusterError, make(cpus_per_site=64), "too few free CPUs", "64")
    refused(OptionError, make(sites=5), "sites is 5", "4 slots")
    refused(OptionError, make(working_dir="/nowhere"), "not a folder")
    import ray as connected

    connected.shutdown()
    refused(ClusterError, make(address=silent), "does not answer")
    free.close()
    refused(ClusterError, make(address=silent), "no Ray cluster is at")
    refused(ClusterError, make(address="ray://127.0.0.1:10001"), "Ray client")
    missing = {"env": Elsewhere(), "sites": 1}
    refused((FaultError, ClusterError), make(**missing), "a_module_of_this_machine")


def a_run_learns_the_weights_of_one_machine(ray, recipe="cartpole", envs=6, rows=32):
    import torch

    from corral.train.run.start import begin

    small = {"num_envs": envs, "ppo.n_steps": rows, "ppo.n_epochs": 2, "video": "never"}
    small |= {"normalise_obs": True, "total_steps": 9 * envs * rows}
    group = {"address": ray.address, "cpus_per_site": 1, "sites": 3}
    places = {"here": {"act_in": "workers"}, "there": {"cluster": group}}
    weights = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(CORRAL_RUNS=f"{folder}/runs", CORRAL_KEY=f"{folder}/key")
        for name, more in places.items():
            training = begin(recipe, {**small, **more}, out=Path(folder) / name)
            with training:
                for _ in range(3):
                    training.learn(training.collect())
                net = training.parts.learner.state_dict()["net"]
                weights[name] = {key: value.clone() for key, value in net.items()}
    for key, value in weights["here"].items():
        assert torch.equal(value, weights["there"][key]), key


def a_run_of_ant_does_too(ray):
    a_run_learns_the_weights_of_one_machine(ray, "ant", 6, 16)


TOKEN = "0123456789abcdef" * 4
STRANGER = """
import on_ray, time
class Ray: address = "{address}"
began = time.monotonic()
try:
    on_ray.cluster_at(Ray, on_ray.Rooms, 4, sites=1).close()
    print("connected")
except on_ray.ClusterError as error:
    print(f"[{{time.monotonic() - began:.1f}} s]", " ".join(str(error).split()))
"""


def a_wrong_or_missing_token_is_refused(ray):
    text = STRANGER.format(address=ray.address)
    strangers = {
        "wrong": {"RAY_AUTH_TOKEN": "f" * 64},
        "missing": {"RAY_AUTH_MODE": "disabled"},
        "right": {},
    }
    for name, env in strangers.items():
        with tempfile.TemporaryDirectory() as folder:
            driver = raylets.run_script(text, Path(folder), **env)
            said, _ = driver.communicate(timeout=60)
        print(f"{name} token: {said}")
        assert ("connected" in said) == (name == "right"), said
        assert name == "right" or "token" in said, said


def main(names: list[str]) -> None:
    if names == ["a_wrong_or_missing_token_is_refused"]:
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN)
    with raylets.raylets() as ray:
        for name in names:
            began = time.monotonic()
            globals()[name](ray)
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
