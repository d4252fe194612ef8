"""Training runs on a cluster: the weights of one machine, also after a resume."""

from pathlib import Path

import pytest
from few_updates import lead, same
from in_process import InProcess

from corral.cluster import run_envs
from corral.cluster.cluster import Cluster, ClusterOptions
from corral.errors import NodeLost, OptionError
from corral.train.recipes.resolve import resolve
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.directory import RunDirectory
from corral.train.run.failure import RunFailure, written_about
from corral.train.run.start import begin, resume
from corral.train.sinks import jsonl

SMALL = {
    **{"num_envs": 4, "ppo.n_steps": 16, "ppo.n_epochs": 2, "ppo.batch_size": 32},
    **{"total_steps": 4 * 16 * 9, "video": "never"},
    **{"isolation": "shared", "backend": "serial"},
}
MORE = {
    "plain": {},
    "scaled": {"normalise_obs": True, "normalise_reward": True},
    "remembering": {"ppo.memory": "gru", "ppo.memory_size": 4},
    "trials": {
        **{"ppo.memory": "gru", "ppo.memory_size": 4},
        **{"trials.episodes": 2, "trials.train_tasks": 0},
    },
}


@pytest.fixture(autouse=True)
def losses(monkeypatch, tmp_path):
    """Sites of runs are in this process; the numbers of the calls that end one."""
    monkeypatch.chdir(tmp_path)
    lose = set()

    def open_sites(config, env, num_envs, options):
        asked = ClusterOptions(**dict(config.cluster))
        engine = InProcess(lose=lose)
        return Cluster.with_options(env, num_envs, asked, options, engine)

    monkeypatch.setattr(run_envs, "open_sites", open_sites)
    return lose


@pytest.mark.parametrize("kind", MORE)
def test_a_run_on_sites_learns_the_weights_of_a_run_here(kind):
    settings = {**SMALL, **MORE[kind]}
    group = {"cluster": {"sites": 3, "cpus_per_site": 1}}
    parts = lead(begin("cartpole", {**settings, **group}, out=Path("parts")), 2)
    lead(resume(parts.path, {"cluster.sites": 2}), 4)
    lead(resume(parts.path, {"cluster": False}), 6)  # and on this machine alone
    here = {**settings, "act_in": "workers"}
    theirs = lead(begin("cartpole", here, out=Path("theirs")), 6)
    one, other = Checkpoint.load(parts.last), Checkpoint.load(theirs.last)
    assert one.update == other.update == 6
    assert same(one.learner, other.learner)
    assert same(one.normalisers, other.normalisers)


def test_a_run_says_which_site_was_lost_and_goes_on(losses, capsys):
    losses.add(6)  # two sites are built, reset and called; then the first is called
    group = {"cluster": {"sites": 2, "cpus_per_site": 1, "on_node_loss": "restart"}}
    directory = lead(begin("cartpole", {**SMALL, **group}, out=Path("lost")), 4)
    line = "Restarted   site 0, node a: its process has ended (1 so far)"
    assert line in capsys.readouterr().out
    (fault,) = jsonl.read(directory.faults)
    assert (fault["kind"], fault["site"], fault["node"]) == ("node", 0, "a")
    assert Checkpoint.load(directory.last).update == 4


def test_a_run_that_a_lost_site_ends_says_how_to_continue(losses):
    losses.add(6)
    group = {"cluster": {"sites": 2, "cpus_per_site": 1}}
    with pytest.raises(NodeLost) as caught:
        lead(begin("cartpole", {**SMALL, **group}, out=Path("lost")), 4)
    config, path = resolve("cartpole", {**SMALL, **group}), Path("lost")
    failure = RunFailure(caught.value, config, ("corral", "train", "cartpole"))
    (line,) = failure.next_steps(RunDirectory(path))
    assert line.endswith("--resume lost --set cluster.on_node_loss=restart")
    (line,) = written_about(RunDirectory(path), caught.value)
    assert line.startswith("Traceback") and not RunDirectory(path).fault.exists()


def test_overlapping_updates_learn_the_same_weights_too():
    settings = {
        **{"learner": "sac", "num_envs": 4, "total_steps": 4 * 8 * 9, "video": "never"},
        **{"sac.rows": 8, "sac.random_steps": 32, "sac.hidden": [8], "sac.overlap": 1},
        **{"sac.updates": 4, "sac.batch_size": 16, "backend": "serial"},
        **{"isolation": "shared", "sac.replay_size": 512},
        **{"normalise_obs": False, "normalise_reward": False},
    }
    places = {"there": {"cluster": {"sites": 3, "cpus_per_site": 1}}}
    places["here"] = {"act_in": "workers"}
    ends = {}
    for name, place in places.items():
        run = begin("pendulum", {**settings, **place}, out=Path(name))
        ends[name] = Checkpoint.load(lead(run, 6).last)
    assert ends["there"].learner["done"]["updates"] > 0
    assert same(ends["there"].learner, ends["here"].learner)


def test_a_learner_that_collects_by_itself_is_refused_in_a_line():
    pytest.importorskip("stable_baselines3")
    settings = {"cluster": {"sites": 1}, "learner": "sb3_ppo", "total_steps": 64}
    text = r"^cluster is set, and sb3_ppo collects .* leave cluster out, [^\n]*$"
    with pytest.raises(OptionError, match=text):
        begin("cartpole", {**settings, "num_envs": 2}, out=Path("sb3"))


def test_the_address_alone_is_enough():
    config = resolve("cartpole", {"cluster": "head:6379"})
    assert config.cluster.address == "head:6379" and config.act_in == "workers"
    assert resolve("cartpole", {"cluster.address": "auto"}).cluster.sites is None
    assert resolve("cartpole", {"cluster": False}).cluster is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cluster": "auto", "mode": "two_groups"}, "set mode: sync"),
        ({"cluster": "auto", "curriculum": "a:b"}, "leave out curriculum or cluster"),
        ({"cluster.addres_s": "auto"}, "addres_s"),
        ({"cluster": {"on_node_loss": "wait"}}, "on_node_loss"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, words):
    with pytest.raises(OptionError, match=words):
        resolve("cartpole", settings)
