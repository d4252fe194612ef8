"""Runs whose envs have several agents: any PettingZoo env, in three views."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from few_updates import lead
from train.run.agent_envs import AGENTS

import corral
from corral.cli.main import main
from corral.engine.pool import Pool
from corral.errors import CorralError, OptionError
from corral.train.recipes.resolve import resolve
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.exporting import export_run
from corral.train.run.loaded_run import LoadedRun
from corral.train.run.parts import build, env_factory, pool_options
from corral.train.run.start import begin, resume
from corral.train.sinks import jsonl

pytest.importorskip("pettingzoo", reason="the envs of these tests")

CONFIG = """
env: agent_envs:Crew
num_envs: 2
backend: serial
total_steps: 64
evaluate_episodes: 2
final_episodes: 2
evaluate_every: 2
checkpoint_every: 2
video: never
ppo: {n_steps: 8, batch_size: 16, n_epochs: 1, hidden: [8]}
"""
TICTACTOE = "pettingzoo.classic.tictactoe.tictactoe:env"
SB3, MASKABLE = "sb3_ppo", "sb3_maskable_ppo"
UNLIKE = {"alike": False}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    Path(tmp_path / "agent_envs.py").write_text(AGENTS)
    Path(tmp_path / "run.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("agent_envs", None)


def ran(out="run", **settings):
    with begin("run.yaml", settings, out=Path(out)) as training:
        assert training.run() == 0
        return training


def built(**settings):
    return build(resolve("run.yaml", settings))


# Views --------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", ["ppo", SB3])
@pytest.mark.parametrize("view", ["shared", "joint"])
def test_any_env_trains_in_each_view_and_tells_the_returns_of_agents(view, learner):
    if learner == SB3:
        pytest.importorskip("stable_baselines3", reason="its PPO is what learns here")
    ran(view=view, learner=learner)
    ended = jsonl.read(Path("run/episodes.jsonl"))
    assert ended and all(one["length"] == 6 for one in ended)
    names = [f"info/return/member_{number}" for number in range(3)]
    for one in ended:
        assert sum(one[name] for name in names) == one["return"]
        assert one["info/late"] == 1.0
    metrics = jsonl.read(Path("run/metrics.jsonl"))
    assert any("eval/info/return/member_1" in one for one in metrics)
    assert "return/member_1" in Path("run/report.html").read_text()
    with LoadedRun(Path("run")) as loaded:
        assert np.isfinite(loaded.evaluate(3, seed=1).mean)


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({}, "view: shared.*the 3 agents have equal spaces"),
        ({"env_kwargs": {"alike": False}}, "view: joint.*agents have different spaces"),
        (
            {"env_kwargs": {"alike": False}, "pad": True},
            "view: shared.*pad: true gives all agents equal spaces",
        ),
        (
            {"env_kwargs": {"actions": "box"}, "learner": "sac"},
            "view: joint.*one agent",
        ),
        ({"learner": "taac"}, "view: team.*trains whole teams"),
        ({"env": TICTACTOE}, "view: shared.*2 agents, which act in turn"),
        ({"view": "joint"}, "view: joint, one policy acts for all agents as one$"),
    ],
)
def test_a_run_says_which_view_it_chose_and_why(settings, reason):
    if settings.get("learner", "ppo") != "ppo":
        Path("run.yaml").write_text(CONFIG[: CONFIG.index("ppo:")])
    parts = built(**settings)
    parts.close()
    assert re.search(reason, parts.remark()), parts.remark()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"kind": "dict"},
        {"actions": "box"},
        {"most": 1},
        {"die": False},
        {"masks": "obs"},
        {"masks": "info"},
    ],
)
@pytest.mark.parametrize("view", ["shared", "joint"])
def test_observations_actions_and_masks_of_every_kind(view, kwargs):
    ran(view=view, env_kwargs=kwargs, total_steps=16)


def test_who_differs_is_padded_and_keeps_to_its_own_actions():
    ran(view="shared", pad=True, env_kwargs={"alike": False, "masks": "info"})


def test_envs_that_reset_at_the_next_step_train_as_well():
    ran(autoreset="next_step", env=TICTACTOE)
    ran("other", autoreset="next_step")


@pytest.mark.parametrize("memory", ["none", "lstm"])
@pytest.mark.parametrize("env", ["agent_envs:Crew", TICTACTOE])
def test_three_updates_and_one_more_are_four(env, memory):
    more = {"normalise_obs": True, "normalise_reward": True} if "Crew" in env else {}
    settings = {"env": env, "ppo.memory": memory, "ppo.memory_size": 4, **more}
    whole = lead(begin("run.yaml", settings, out=Path("whole")), 4)
    parts = lead(begin("run.yaml", settings, out=Path("parts")), 3)
    lead(resume(parts.path, {}), 4)
    ours, theirs = Checkpoint.load(parts.last), Checkpoint.load(whole.last)
    assert ours.update == theirs.update == 4
    for name, weights in theirs.learner["net"].items():
        assert np.array_equal(ours.learner["net"][name], weights), name
    assert str(ours.normalisers) == str(theirs.normalisers)
    assert jsonl.read(parts.episodes) == jsonl.read(whole.episodes)


@pytest.mark.parametrize("env", ["agent_envs:Crew", TICTACTOE])
def test_backends_and_places_of_acting_give_the_same_weights(env):
    found = []
    for number, place in enumerate(
        [
            {"backend": "serial"},
            {"backend": "process", "workers": 2},
            {"backend": "thread", "workers": 2, "act_in": "caller"},
        ]
    ):
        act_in = {"act_in": "workers", **place}
        settings = {"env": env, **act_in}
        if place.get("act_in") == "caller":
            settings["act_in"] = "auto"  # exact as well, wherever it acts
        path = lead(begin("run.yaml", settings, out=Path(f"run{number}")), 2)
        found.append(Checkpoint.load(path.last).learner["net"])
    for other in found[1:]:
        for name, weights in found[0].items():
            assert np.array_equal(weights, other[name]), name


# The policy of one agent --------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"normalise_obs": True},
        {"env": TICTACTOE},
        {"env_kwargs": {"masks": "info"}, "normalise_obs": True},
        {"learner": SB3, "normalise_obs": True, "pad": True, "env_kwargs": UNLIKE},
        {"learner": MASKABLE, "env_kwargs": {"masks": "obs"}},
        {"learner": MASKABLE, "env_kwargs": {"masks": "info"}, "normalise_obs": True},
    ],
)
def test_a_shared_policy_is_loaded_and_exported_as_that_of_one_agent(settings):
    if settings.get("learner") == MASKABLE:
        pytest.importorskip("sb3_contrib", reason="its MaskablePPO learns here")
    ran(**settings)
    policy = corral.load_policy("run")
    seen = policy.observation_space.sample()
    assert policy.action_space.contains(policy.act(seen))
    *_, program, _, onnx, _ = export_run(Path("run"))
    assert program.exists() and onnx.exists()  # and were compared with the policy


def test_padded_and_scaled_agents_are_not_loaded_by_themselves():
    ran(pad=True, normalise_obs=True, env_kwargs={"alike": False})
    with pytest.raises(OptionError, match="normalise_obs and pad are true"):
        corral.load_policy("run")


# Games --------------------------------------------------------------------------------


@pytest.mark.parametrize("against", ["opponents", "evaluate_against"])
def test_evaluations_against_random_moves_count_what_was_won(against):
    settings = {"env": TICTACTOE, against: "random", "evaluate_episodes": 20}
    training = ran(**settings)
    assert "random" in training.parts.remark()
    evaluated = [
        one for one in jsonl.read(Path("run/metrics.jsonl")) if "eval/return" in one
    ]
    assert all(0 <= one["eval/success_rate"] <= 1 for one in evaluated)
    # Every other game is the other player's.
    assert all("eval/info/return/player_1" in one for one in evaluated)
    assert all("eval/info/return/player_2" in one for one in evaluated)
    with LoadedRun(Path("run")) as loaded:
        first, again = (loaded.evaluate(6, seed=3) for _ in range(2))
    assert first.success_rate is not None
    assert np.array_equal(first.returns, again.returns)


def test_players_whose_observations_are_scaled_are_evaluated_against_random_moves():
    training = ran(env=TICTACTOE, evaluate_against="random", normalise_obs=True)
    assert training.parts.obs_norm is not None


@pytest.mark.parametrize("masks", ["obs", "info"])
@pytest.mark.parametrize("view", ["shared", "joint"])
def test_sb3_contribs_learner_obeys_masks_and_resumes(view, masks):
    """The env raises where an action is forbidden."""
    pytest.importorskip("sb3_contrib", reason="its MaskablePPO learns here")
    settings = {"view": view, "learner": MASKABLE, "env_kwargs": {"masks": masks}}
    ran("whole", **settings)
    parts = lead(begin("run.yaml", settings, out=Path("parts")), 2)
    lead(resume(parts.path, {}), 4)
    whole = Checkpoint.load(Path("whole/checkpoints/last.pt"))
    for name, weights in whole.learner["net"].items():
        assert np.array_equal(Checkpoint.load(parts.last).learner["net"][name], weights)
    policy = corral.load_policy("whole")
    for allowed in range(3):
        seen = policy.observation_space.sample()
        seen["action_mask"][:] = np.arange(len(seen["action_mask"])) % 3 == allowed
        assert np.all(policy.act(seen) == allowed)
        assert np.all(policy.act(seen, deterministic=False) == allowed)


def test_masks_of_one_agent_are_obeyed_and_their_absence_is_told():
    pytest.importorskip("sb3_contrib", reason="its MaskablePPO learns here")
    ran(env="agent_envs:Alone", learner=MASKABLE)
    with pytest.raises(OptionError, match="has none: give it a method action_masks"):
        built(env="CartPole-v1", learner=MASKABLE)


def test_a_learner_that_ignores_masks_says_which_one_obeys():
    pytest.importorskip("stable_baselines3", reason="its PPO is what learns here")
    for settings in ({"env": TICTACTOE}, {"env": TICTACTOE, "view": "joint"}):
        parts = built(**settings, learner=SB3)
        parts.close()
        assert "ignores; learner: sb3_maskable_ppo (sb3-contrib" in parts.remark()
    parts = built(learner=SB3)
    parts.close()
    assert "mask" not in parts.remark()


def test_stable_baselines3_plays_in_turn():
    pytest.importorskip("stable_baselines3", reason="its PPO is what learns here")
    ran(env=TICTACTOE, learner=SB3, evaluate_against="random")


# Teams that change --------------------------------------------------------------------


@pytest.mark.parametrize("view", ["shared", "joint"])
def test_agents_of_a_restarted_env_learn_of_the_curriculum(view):
    """What they see, and what they may do, in the episode that begins with it."""
    pytest.importorskip("sb3_contrib")

    def curriculum(venv, steps):
        venv.env_method("lead", 1)

    asked = {"env": "agent_envs:Led", "learner": MASKABLE, "view": view}
    config = resolve(
        "run.yaml",
        {**asked, "env_kwargs": {"masks": "obs", "die": False}, "ppo.batch_size": 8}
        | {"backend": "process", "on_fault": "restart"},
    )
    parts = build(config, curriculum=curriculum)
    with parts.pool as pool:
        parts.collector.collect(8)
        pool.call("doom", slots=[1])
        lost = parts.collector.collect(8).valid
        assert lost.sum(axis=0).tolist() == [8, 7]
        assert [fault.kind for fault in pool.faults] == ["died"]
        seen = parts.learner.model.rollout_buffer.observations
        seen = seen["observation"] if isinstance(seen, dict) else seen
        assert (seen == seen[0]).all()


@pytest.mark.parametrize("view", ["shared", "joint", "team"])
def test_how_many_play_is_an_episodes_task(view):
    """As box_jump has it: a pool whose `sample_task` draws the number of agents."""
    learner = "taac" if view == "team" else "ppo"
    Path("run.yaml").write_text(CONFIG[: CONFIG.index("ppo:")])
    config = resolve("run.yaml", {"view": view, "learner": learner})
    parts = build(config, opener=drawing_teams)
    try:
        rollout = parts.collector.collect(48)
        parts.learner.update(rollout)
    finally:
        parts.close()
    if view == "joint":  # agents that are not there are zeros
        present = (rollout.obs.reshape(48, 2, 3, 3) != 0).any(-1)[rollout.started]
        assert set(present.sum(-1).tolist()) == {1, 2, 3}
        return
    (leaves,) = rollout.obs.values()
    teams = set(leaves["alive"][rollout.started].sum(-1).tolist())
    assert teams == {1, 2, 3}
    for one in rollout.episodes:
        present = [name for name in one.info if name.startswith("return/")]
        assert 1 <= len(present) <= 3


def drawn_team(slot, episode, rng):
    return int(rng.integers(1, 4))


def drawing_teams(config, backend, workers):
    options = pool_options(config, backend=backend, sample_task=drawn_team)
    return Pool.with_options(env_factory(config), config.num_envs, options)


def test_a_config_names_who_draws_how_many_play():
    ran(sample_task="agent_envs:some")
    ended = jsonl.read(Path("run/episodes.jsonl"))
    teams = {sum(name.startswith("info/return/") for name in one) for one in ended}
    assert len(teams) > 1


# Bad input ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"view": "sideways"}, "view is 'sideways'.*'shared', 'joint' or 'team'"),
        ({"view": "team"}, "view is 'team', and learner: ppo does not train teams"),
        (
            {"view": "shared", "learner": "taac"},
            "view is 'shared', and learner: taac trains whole teams.*leave view out",
        ),
        (
            {"view": "shared", "learner": "sac"},
            "view is 'shared', and learner: sac has no policy that agents could share",
        ),
        (
            {"view": "shared", "env_kwargs": {"alike": False}},
            "view is 'shared', and one policy does not fit all agents.*pad: true",
        ),
        (
            {"view": "shared", "env": "CartPole-v1"},
            "view is 'shared', and `env: CartPole-v1` has one agent",
        ),
        (
            {"opponents": "random", "env": "CartPole-v1"},
            "opponents is 'random', and .* has one agent",
        ),
        (
            {"opponents": "random", "env_kwargs": {"most": 1}},
            "random opponents need two or more",
        ),
        ({"env": "agent_envs:Nobody"}, "`env: agent_envs:Nobody` has no agents"),
        ({"env": "agent_envs:Crow"}, "^`env: agent_envs:Crow`: .*Crow.*Crew"),
        ({"env": "agents_envs:Crew"}, "`env: agents.*no module 'agents_envs'"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_name_of_its_key(settings, message):
    if settings.get("learner", "ppo") != "ppo":
        Path("run.yaml").write_text(CONFIG[: CONFIG.index("ppo:")])
    with pytest.raises((CorralError, OptionError)) as raised:
        built(**settings)
    assert re.search(message, str(raised.value), re.S), str(raised.value)


def test_the_extra_of_pettingzoo_is_named_where_it_is_missing(monkeypatch):
    for name in [one for one in sys.modules if one.split(".")[0] == "pettingzoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Without("pettingzoo"), *sys.meta_path])
    with pytest.raises(OptionError, match=r"no module 'pettingzoo'.*corral\[multi\]"):
        built(env=TICTACTOE)


class Without:
    """Finds no module of this name."""

    def __init__(self, name):
        self.name = name

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=self.name)


def test_the_command_line_trains_resumes_and_evaluates(capsys):
    assert main(["train", "run.yaml", "--out", "run"]) == 0
    said = capsys.readouterr()
    assert "view: shared, one policy for each of up to 3 agents" in said.out + said.err
    more = ["--set", "total_steps=96"]
    assert main(["train", "--resume", "run", *more]) == 0
    assert main(["eval", "run", "--episodes", "2"]) == 0
