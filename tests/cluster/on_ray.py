"""What a cluster promises, on real raylets: `python on_ray.py NAME ...` in a process.

Each function is one sentence. The first that fails ends with its traceback.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))
import raylets
from scenes import (
    Recall,
    Rooms,
    Tilt,
    Walker,
    assert_equal,
    assert_same_rollouts,
    collected,
    draw_task,
    make_trial,
)

import corral
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import ClusterError, FaultError, NodeLost, OptionError

# Seconds: less than 1 where cores are free. Ray alone would take 5 s more for a process
# that was stopped, and 40 s for those of a raylet.
SOON = 3.0
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


def on_nodes(cluster, count):
    """A site reserves all CPUs of its raylet: so many sites are so many raylets."""
    assert len({one.node for one in cluster.stats().sites}) == count


def the_numbers_are_those_of_one_machine_also_after_a_loss(ray):
    """Norms, carries, Dict observations, tasks, trials: on 2 and 3 raylets.

    The second cluster opens as the first has closed, and needs all CPUs.
    """
    whole = {"cpus_per_site": 2}
    with cluster_at(ray, make_trial, 5, sites=2, backend="serial", **whole) as two:
        on_nodes(two, 2)
        ours = collected(two, Recall())
    assert_same_rollouts(ours, local(Recall(), make_trial, 5))
    options = {"workers": 1, "on_node_loss": "restart", **whole}
    with cluster_at(ray, Slow, 6, sites=3, **options) as three:
        on_nodes(three, 3)
        ours = collected(three, Walker())
        episodes_and_maps_too(three)
        assert disturbed(three, kill_actor)["gone"] < SOON
    assert_same_rollouts(ours, local(Walker(), Rooms, 6))


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
    squares = corral.map(lambda x: x * x, range(9), backend="thread", cluster=cluster)
    assert squares == [x * x for x in range(9)]


def disturbed(cluster, disturb, number=5):
    """Collect, disturb site 1 in the middle of a fragment, collect twice more."""
    collector, losses = corral.Collector(cluster, Walker()), cluster.fault_count
    collector.end_episodes(number)
    first = collector.collect(5)
    pid = cluster.stats().sites[1].pid
    tree, told = raylets.tree_of(pid), {}

    def strike():
        told["began"] = time.monotonic()
        disturb(pid)
        told["gone"] = raylets.seconds_until_gone(tree, 20.0)

    striker = threading.Timer(0.2, strike)
    striker.start()
    second = collector.collect(80)
    told["again"] = time.monotonic() - told.pop("began")
    striker.join()
    third = collector.collect(5)
    assert cluster.fault_count == losses + 1
    fault = cluster.faults[-1]
    assert (fault.kind, fault.site) == ("node", 1) and fault.node, fault
    assert not second.valid[:, 2:4].any() and second.valid[:, 4:].any()
    check_as_local(number, cluster.generation(1), first, second, third)
    print(disturb.__name__, {key: round(value, 2) for key, value in told.items()})
    return told


def check_as_local(number, generation, first, second, third):
    """A pool whose slots 2 and 3 begin again with the root after a loss."""
    root, others = episode_seed(0, number, SeedDomain.NUMBERED), [0, 1, 4, 5]
    with corral.Pool(Rooms, 6, backend="serial", **{**ROOMS, "seed": root}) as pool:
        collector = corral.Collector(pool, Walker())
        for ours, rows in ((first, 5), (second, 80), (third, 5)):
            theirs = collector.collect(rows)
            assert_equal(ours.action[:, others], theirs.action[:, others])
            assert_equal(ours.reward[:, others], theirs.reward[:, others])
    again = episode_seed(root, generation, SeedDomain.RESTARTS)
    with corral.Pool(Rooms, 6, backend="serial", **{**ROOMS, "seed": again}) as pool:
        theirs = corral.Collector(pool, Walker()).collect(5)
    assert_equal(third.action[:, 2:4], theirs.action[:, 2:4])


def kill_actor(pid):
    os.kill(pid, raylets.KILL)


def stop_actor(pid):
    os.kill(pid, raylets.STOP)


def kill_raylet(pid):
    raylets.raylet_of(pid).kill()


def losses_are_noticed_and_a_node_that_joins_is_used(ray):
    """A stopped actor ends at its deadline, processes of a raylet end with it."""
    options = {"on_node_loss": "restart", "fragment_timeout": 3.0, "workers": 1}
    with cluster_at(ray, Slow, 6, sites=3, **options) as cluster:
        on_nodes(cluster, 3)
        assert disturbed(cluster, kill_raylet)["gone"] < SOON
        collector = corral.Collector(cluster, Walker())
        collector.end_episodes(1)
        on_nodes(cluster, 2)
        join(ray, cluster)
        collector.end_episodes(2)
        on_nodes(cluster, 3)
        assert disturbed(cluster, stop_actor)["gone"] < 3.0 + SOON


def join(ray, cluster):
    """Add a node, and wait until the cluster knows it."""
    # By their ids: a node that was lost may be counted for some seconds more.
    known = node_ids(cluster)
    node = raylets.add_node(ray)
    deadline = time.monotonic() + 20
    while node_ids(cluster) <= known:
        assert time.monotonic() < deadline, "the cluster does not see the new node"
        time.sleep(0.05)
    return node


def node_ids(cluster):
    return {node.id for node in cluster.stats().nodes}


def sites_are_added_with_a_node_and_a_loss_has_what_had_come_back(ray):
    """Without `sites`: as many as fit. Without workers, the actors run the envs."""
    options = {"cpus_per_site": 2, "backend": "serial"}
    with cluster_at(ray, Slow, 8, **options) as cluster:
        assert len(cluster.shards) == 3
        collector = corral.Collector(cluster, Walker())
        collector.collect(2)
        node = join(ray, cluster)
        collector.end_episodes(1)
        assert [len(slots) for slots in cluster.shards] == [2, 2, 2, 2]
        pid = cluster.stats().sites[1].pid
        threading.Timer(0.2, kill_actor, (pid,)).start()
        try:
            collector.collect(80)
            raise AssertionError("it was lost")
        except NodeLost as error:
            assert error.fault.site == 1, error
            assert error.rollout.valid[:, 4:].any()
            assert not error.rollout.valid[:, 2:4].any()
    ray.remove_node(node)


DRIVER = """
import on_ray, corral, sys, time
class Ray: address = "{address}"
cluster = on_ray.cluster_at(Ray, on_ray.Slow, 4, sites=2)
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
        assert len(trees) >= 4, trees
        time.sleep(0.3)
        driver.kill()
        seconds = raylets.seconds_until_gone(trees)
        driver.wait()
        driver.stdout.close()
        print("a killed driver's sites were gone after", round(seconds, 2), "s")


def modules_travel_in_a_working_dir(ray):
    """To every raylet, each of which unpacks it into a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        text = "import gymnasium\ndef make(): return gymnasium.make('CartPole-v1')\n"
        (Path(folder) / "sent_along.py").write_text(text)
        sys.path.insert(0, folder)
        options = dict(sites=2, cpus_per_site=2, sample_task=None, backend="serial")
        there = dict(working_dir=folder, **options)
        with cluster_at(ray, "sent_along:make", 3, **there) as cluster:
            on_nodes(cluster, 2)
            assert cluster.importable("sent_along")
            ours = collected(cluster, Tilt())
        assert_same_rollouts(ours, local(Tilt(), "CartPole-v1", 3, sample_task=None))


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


def other_versions_of_packages_and_none_of_corral_are_refused(ray):
    """On a node where packages of other versions are found first."""
    with tempfile.TemporaryDirectory() as folder:
        names = ("corral", "numpy", "gymnasium", "torch")
        for name in names:
            about = Path(folder) / f"{name}-0.1.dist-info" / "METADATA"
            about.parent.mkdir()
            about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        node = raylets.add_node(ray, 3, wait=True, env_vars={"PYTHONPATH": folder})
        here = {name: metadata.version(name) for name in names}
        words = [f"{name} is {there} here and 0.1 on" for name, there in here.items()]

        def start():  # only there are 3 CPUs
            return cluster_at(ray, Rooms, 4, sites=1, cpus_per_site=3)

        refused(ClusterError, start, "other versions than this process", *words)
        hides = Path(folder) / "corral" / "__init__.py"
        hides.parent.mkdir()
        hides.write_text("raise ModuleNotFoundError('none of that name')")
        text = "Corral cannot be imported there: ModuleNotFoundError: none of that name"
        refused(ClusterError, start, text, "Install the same version")
        ray.remove_node(node)


def bad_input_is_refused_in_seconds_and_the_doctor_says_what_is_reachable(ray):
    """The doctor looks while nothing here needs a CPU of the cluster."""
    doctor = typed(ray, "doctor", "--cluster")

    def make(**options):
        env = options.pop("env", Rooms)
        return lambda: cluster_at(ray, env, 4, **options)

    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    silent = f"127.0.0.1:{port}"
    refused(ClusterError, make(cpus_per_site=64), "too few free CPUs", "64")
    refused(OptionError, make(sites=5), "sites is 5", "4 slots")
    refused(OptionError, make(working_dir="/nowhere"), "not a folder")
    refused(ClusterError, make(address=silent), "does not answer")
    free.close()
    refused(ClusterError, make(address=silent), "no Ray cluster is at")
    refused(ClusterError, make(address="ray://127.0.0.1:10001"), "Ray client")
    said, _ = doctor.communicate(timeout=120)
    assert said.count(": the same versions") == said.count("2 CPUs, 2 free") == 3, said
    assert "3 sites of 2 CPUs fit" in said and "noticed after about 3 s" in said, said
    assert "token authentication is off" in said and doctor.returncode == 3, said
    missing = {"env": Elsewhere(), "sites": 1}
    refused((FaultError, ClusterError), make(**missing), "a_module_of_this_machine")


def clusters_share_a_connection_until_the_last_is_closed(ray):
    """And only one: another address is refused, and the caller's handler stays."""
    import ray as ray_itself

    def handler(number, frame):
        raise AssertionError("nothing sends SIGTERM")

    before = signal.signal(signal.SIGTERM, handler)
    options = {"sites": 1, "backend": "serial"}
    first = cluster_at(ray, Rooms, 2, **options)
    with cluster_at(ray, Rooms, 2, **options) as second:
        for other in ("127.0.0.1:1", "local"):
            start = partial(cluster_at, ray, Rooms, 2, address=other)
            refused(OptionError, start, other, "is connected to", ray.address)
        first.close()
        assert corral.Collector(second, Walker()).collect(3).valid.any()
    assert not ray_itself.is_initialized()
    assert signal.signal(signal.SIGTERM, before) is handler


SMALL = {"ppo.n_epochs": 2, "ppo.hidden": [8], "video": "never", "num_envs": 6}
MEMORY = {"ppo.memory": "gru", "ppo.memory_size": 4}
SCALED = {"normalise_obs": True, "normalise_reward": True}
# Without workers beside the actor, each of which would import torch.
IN_ACTORS = {"backend": "serial", "isolation": "shared"}


@contextmanager
def runs_folder():
    """Runs and keys of no user."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(CORRAL_RUNS=f"{folder}/runs", CORRAL_KEY=f"{folder}/key")
        yield Path(folder)


def learnt(recipe, settings, folder, sites=0):
    """The learner's state after 3 updates."""
    from corral.train.run.start import begin

    with begin(recipe, settings, out=folder / f"{recipe}-{sites}") as training:
        if sites:
            on_nodes(training.parts.pool, sites)
        for _ in range(3):
            training.learn(training.collect())
        return training.parts.learner.state_dict()


def check_runs(ray, recipe, settings, counts):
    """Runs on so many raylets learn the weights of a run here."""
    here = {**settings, **IN_ACTORS, "act_in": "workers"}
    with runs_folder() as folder:
        wanted = learnt(recipe, here, folder)
        for sites in counts:
            group = {"address": ray.address, "cpus_per_site": 2, "sites": sites}
            ours = learnt(recipe, {**settings, "cluster": group}, folder, sites)
            assert_equal(ours, wanted, f"{recipe} on {sites}")


def runs_learn_the_weights_of_one_machine(ray):
    """On 1, 2 and 3 raylets; each run closes its sites, and the next builds others."""
    from kept_hosts import KeptHosts, ray_engine

    with patch.object(ray_engine, "RayEngine", KeptHosts):
        a_run_of_cartpole_does(ray)
        a_run_of_ant_does_too(ray)
        a_run_of_trials_with_a_memory_does_too(ray)
        a_run_whose_updates_overlap_does_too(ray)
    assert len(KeptHosts.kept) == 3
    ray_engine.ray.shutdown()


def a_run_of_cartpole_does(ray):
    settings = {**SMALL, **SCALED, "ppo.n_steps": 32, "total_steps": 9 * 6 * 32}
    check_runs(ray, "cartpole", {**settings, **IN_ACTORS}, (1, 2, 3))


def a_run_of_ant_does_too(ray):
    settings = {**SMALL, **SCALED, "ppo.n_steps": 16, "total_steps": 9 * 6 * 16}
    check_runs(ray, "ant", {**settings, **IN_ACTORS}, (1, 2, 3))


def a_run_of_trials_with_a_memory_does_too(ray):
    trials = {"trials.episodes": 2, "trials.train_tasks": 0}
    settings = {**SMALL, **MEMORY, **trials, "ppo.n_steps": 32, "total_steps": 9 * 192}
    check_runs(ray, "cartpole", {**settings, **IN_ACTORS}, (2,))


def a_run_whose_updates_overlap_does_too(ray):
    settings = {
        **{"learner": "sac", "num_envs": 6, "total_steps": 6 * 8 * 9, "video": "never"},
        **{"sac.rows": 8, "sac.random_steps": 48, "sac.hidden": [8], "sac.overlap": 1},
        **{"sac.updates": 4, "sac.batch_size": 16, "sac.replay_size": 512},
        **dict.fromkeys(SCALED, False),
    }
    check_runs(ray, "pendulum", {**settings, **IN_ACTORS}, (2,))


def typed(ray, *arguments):
    """`corral`, as it is typed on a machine of the cluster."""
    return subprocess.Popen(
        [sys.executable, "-m", "corral", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "RAY_ADDRESS": ray.address},
    )


def a_killed_run_that_is_resumed_learns_the_same(ray):
    """On three raylets, killed after a checkpoint, resumed on one; here in one go."""
    from corral.train.run.checkpoint import Checkpoint
    from corral.train.run.start import begin

    rest = {"ppo.n_steps": 32, "total_steps": 24 * 6 * 32, "checkpoint_every": 2}
    few = {"evaluate_every": 1000, "evaluate_episodes": 1, "final_episodes": 0}
    settings = {**SMALL, **SCALED, **rest, **few, **IN_ACTORS}
    with runs_folder() as folder:
        given = [f"--set={key}={value}" for key, value in settings.items()]
        there = ["--cluster", "auto", "--set", "cluster.cpus_per_site=2"]
        run, last = folder / "there", folder / "there" / "checkpoints" / "last.pt"
        driver = typed(ray, "train", "cartpole", f"--out={run}", *there, *given)
        while driver.poll() is None:
            time.sleep(0.05)
            if last.exists() and Checkpoint.load(last).update >= 2:
                driver.kill()
        output, _ = driver.communicate()
        assert driver.returncode == -raylets.KILL, output[-4000:]
        killed_at = Checkpoint.load(last).update
        again = typed(ray, "train", f"--resume={run}", "--set", "cluster.sites=1")
        output, _ = again.communicate(timeout=120)
        assert again.returncode == 0, output[-4000:]
        here = {**settings, "act_in": "workers"}
        with begin("cartpole", here, out=folder / "here") as training:
            while training.progress.update < 24:
                training.learn(training.collect())
                if training.progress.update % 2 == 0:
                    training.checkpoint()
        ours, theirs = (Checkpoint.load(one) for one in (last, training.directory.last))
        print(f"killed after the checkpoint of update {killed_at}")
        assert 2 <= killed_at < ours.update == theirs.update == 24
        assert_equal(ours.learner, theirs.learner)
        assert_equal(ours.normalisers, theirs.normalisers)


TOKEN = "0123456789abcdef" * 4
STRANGER = """
import on_ray, time
class Ray: address = "auto"
began = time.monotonic()
try:
    on_ray.cluster_at(Ray, on_ray.Rooms, 4, sites=1, backend="serial").close()
    print("connected")
except on_ray.ClusterError as error:
    print(f"[{time.monotonic() - began:.1f} s]", " ".join(str(error).split()))
"""


def a_wrong_or_missing_token_is_refused(ray):
    from ray._private.utils import write_ray_address

    with tempfile.TemporaryDirectory() as home:
        (Path(home) / ".ray").mkdir()
        (Path(home) / ".ray" / "auth_token").write_text(TOKEN)
        strangers = {
            "wrong": {"RAY_AUTH_TOKEN": "f" * 64},
            "missing": {"RAY_AUTH_MODE": "disabled"},
            # Of this machine, where nothing but `--cluster auto` was typed.
            "found": {"RAY_AUTH_MODE": None, "RAY_AUTH_TOKEN": None, "HOME": home},
        }
        write_ray_address(ray.address)
        drivers = {
            name: raylets.run_script(STRANGER, Path(home), **env)
            for name, env in strangers.items()
        }
        for name, driver in drivers.items():
            said, _ = driver.communicate(timeout=60)
            print(f"{name} token: {said}")
            assert ("connected" in said) == (name == "found"), said
            assert name == "found" or "token" in said, said


def main(names: list[str]) -> None:
    lose_raylets = losses_are_noticed_and_a_node_that_joins_is_used
    given = {"in_head": lose_raylets.__name__ not in names}
    if a_wrong_or_missing_token_is_refused.__name__ in names:
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN)
    with raylets.raylets(**given) as ray:
        for name in names:
            began = time.monotonic()
            globals()[name](ray)
            print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
