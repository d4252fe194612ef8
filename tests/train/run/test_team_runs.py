"""Runs of a learner that trains teams: any PettingZoo env, named in a config."""

from pathlib import Path

import pytest

from corral.engine.adapters.parallel import ParallelAdapter
from corral.errors import CorralError, OptionError
from corral.train.recipes.resolve import resolve
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.parts import build
from corral.train.run.start import begin, resume
from corral.train.run.team_learners import agents_factory

CONFIG = """
env: {env}
learner: taac
num_envs: 2
backend: serial
total_steps: 100
evaluate_episodes: 1
final_episodes: 1
checkpoint_every: 1
video: never
taac: {{n_steps: 25, n_epochs: 1, hidden: 8, embedding: 4}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def written(env):
    Path("team.yaml").write_text(CONFIG.format(env=env))
    return "team.yaml"


@pytest.mark.parametrize("continuous", [False, True])
def test_a_config_names_any_parallel_env(continuous):
    pytest.importorskip("mpe2", reason="the env of this test")
    source = written("mpe2.simple_spread_v3:parallel_env")
    kwargs = {"env_kwargs": {"N": 2, "continuous_actions": continuous}}
    with begin(source, kwargs, out=Path("run")) as training:
        while training.progress.update < 1:
            rollout = training.collect()
            training.log(rollout, training.learn(rollout))
        training.checkpoint()
    with resume(Path("run"), {}) as training:
        assert training.run() == 0
        assert training.parts.learner.team.agents == 2
    assert Checkpoint.load(Path("run/checkpoints/last.pt")).update == 2


def test_agents_in_turn_act_at_once_where_their_env_allows_it():
    rps = pytest.importorskip(
        "pettingzoo.classic.rps.rps", reason="the env of this test"
    )
    config = resolve(written("pettingzoo.classic.rps.rps:env"), {})
    assert isinstance(agents_factory(config, rps.env)(), ParallelAdapter)


def test_agents_that_must_take_turns_are_refused():
    pytest.importorskip("pettingzoo", reason="the env of this test")
    config = resolve(written("pettingzoo.classic.tictactoe.tictactoe:env"), {})
    with pytest.raises(
        OptionError, match="learner: taac needs agents that act at once"
    ):
        build(config)


def test_an_env_with_one_agent_is_refused():
    with pytest.raises(
        CorralError, match=r"learner: taac trains teams, and .*CartPole"
    ):
        build(resolve(written("CartPole-v1"), {}))
