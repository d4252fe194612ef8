"""`learner: module:Class`: a learner of the user's trains, resumes and reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from test_resuming import learnt, same

from corral.cli.main import main
from corral.errors import OptionError, UnsafeFile
from corral.train.recipes.resolve import resolve
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.directory import RunDirectory
from corral.train.run.loaded_run import LoadedRun
from corral.train.run.start import begin
from corral.train.sinks import jsonl

TOY = '''
import numpy as np
from pydantic import Field

from corral import Decision
from corral.learners.protocol import Episodes, Learner, LearnerConfig, PolicyVariants


class Linear(PolicyVariants):
    """Two actions; the logit of the second one is linear in the observation."""

    def __init__(self, size):
        self.weights = np.zeros(size)

    def act(self, step, carry, rng):
        right = 1 / (1 + np.exp(-step.obs @ self.weights))
        drawn = 0.5 if self.greedy else rng.random(1)[:, 0]
        return Decision((drawn < right).astype(int), extras={"right": right})


class Reinforce(Learner):
    """Policy gradients from whole episodes, in numpy."""

    title = "REINFORCE"
    charts = {"mean_return": ("Mean return", "Of the episodes of one update.")}

    class Config(LearnerConfig):
        episodes: int = Field(default=6, ge=1, description="episodes per update")
        lr: float = Field(default=0.05, gt=0, description="learning rate")

    def __init__(self, setup):
        super().__init__(setup)
        self.policy = Linear(setup.spec.observation_space.shape[0])

    @classmethod
    def wants(cls, settings):
        return Episodes(settings.episodes)

    def update(self, episodes):
        returns = np.array([episode.return_ for episode in episodes])
        slope = sum(
            (episode.action - episode.extras["right"]) @ episode.obs * gain
            for episode, gain in zip(episodes, returns - returns.mean())
        )
        self.policy.weights += self.settings.lr * slope / len(episodes.reward)
        return {"mean_return": float(returns.mean())}

    def state_dict(self):
        return {"weights": self.policy.weights.copy()}

    def load_state_dict(self, state):
        self.policy.weights[:] = state["weights"]
'''

CONFIG = {
    "env": "CartPole-v1",
    "learner": "toy:Reinforce",
    "reinforce": {"lr": 0.02},
    "backend": "serial",
    "num_envs": 2,
    "total_steps": 1200,
    "evaluate_every": 2,
    "evaluate_episodes": 2,
    "final_episodes": 2,
    "checkpoint_every": 2,
    "video": "never",
}


@pytest.fixture(autouse=True)
def toy(here):
    """The learner's module, and a config that names it."""
    assert TOY.strip().count("\n") < 60
    Path("toy.py").write_text(TOY)
    Path("toy.yaml").write_text(yaml.safe_dump(CONFIG))
    yield
    import sys

    sys.modules.pop("toy", None)


def train(*words: str) -> RunDirectory:
    assert main(["train", *words]) == 0
    return RunDirectory(Path("run"))


def test_it_trains_and_appears_in_the_report():
    run = train("toy.yaml", "--out", "run", "--set", "reinforce.episodes=4")
    lines = jsonl.read(run.metrics)
    assert lines[-1]["step"] >= 1200
    assert all("learn/mean_return" in line for line in lines if "learn/" in str(line))
    written = yaml.safe_load(run.config.read_text())
    assert written["reinforce"] == {"episodes": 4, "lr": 0.02}
    assert "ppo" not in written
    report = run.report.read_text()
    assert "REINFORCE on CartPole-v1" in report
    assert "Mean return" in report and "Of the episodes of one update." in report
    assert "Policy loss" not in report
    assert len(jsonl.read(run.episodes)) % 4 == 0
    with LoadedRun(run.path) as loaded:
        assert loaded.evaluate(3, seed=1).mean > 0


def test_a_resumed_run_equals_one_that_was_not_interrupted():
    whole = train("toy.yaml", "--out", "run")
    shutil.move("run", "whole")
    with begin("toy.yaml", {}, out=Path("run")) as training:
        for _ in range(3):  # the third update is lost: it was not saved
            rollout = training.collect()
            training.log(rollout, training.learn(rollout))
            if training.progress.update == 2:
                training.evaluate()
                training.checkpoint()
    parts = train("--resume", "run")
    whole = RunDirectory(Path("whole"))
    ours, theirs = Checkpoint.load(parts.last), Checkpoint.load(whole.last)
    assert ours.update == theirs.update > 3
    assert same(ours.learner, theirs.learner)
    assert ours.results == theirs.results
    assert jsonl.read(parts.episodes) == jsonl.read(whole.episodes)
    assert learnt(parts) == learnt(whole)


def test_a_recipe_takes_it_and_leaves_out_the_settings_of_its_own_learner():
    config = resolve("cartpole", {"learner": "toy:Reinforce", "reinforce.lr": 0.5})
    assert config.reinforce.lr == 0.5 and not hasattr(config, "ppo")
    assert config.updates is None and config.evaluate_every is None
    train("cartpole", "--set", "learner=toy:Reinforce", "--set", "backend=serial",
          *("--total-steps", "300", "--out", "run", "--set", "final_episodes=1"),
          *("--set", "evaluate_episodes=1", "--set", "video=never"))  # fmt: skip


def test_its_weights_begin_another_run():
    first = train("toy.yaml", "--out", "run")
    weights = Checkpoint.load(first.best).learner["weights"]
    with begin("toy.yaml", {}, out=Path("second"), init_from=first.path) as new:
        assert (new.parts.learner.policy.weights == weights).all()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"learner": "ppp"}, "learner is 'ppp'; did you mean ppo"),
        ({"learner": "toy:Reinforc"}, "no 'Reinforc'; near names: Reinforce"),
        ({"learner": "toy:Linear"}, "does not derive from"),
        ({"learner": "no_such:Class"}, "learner is 'no_such:Class': no mod"),
        ({"ppo.lr": 1}, "unknown key ppo"),
        ({"reinforce.rl": 1}, "did you mean reinforce.lr?"),
        ({"reinforce.lr": -1}, "reinforce.lr is -1: Input should be greater"),
        ({"normalise_obs": True}, "learns from whole episodes"),
    ],
)
def test_mistakes_are_told(settings, told):
    with pytest.raises(OptionError) as caught:
        begin("toy.yaml", settings, out=Path("run"))
    assert told in str(caught.value)


def test_its_code_is_not_run_from_a_run_that_is_not_trusted():
    run = train("toy.yaml", "--out", "run", "--set", "final_episodes=0")
    text = run.config.read_text()
    run.config.write_text(text.replace("toy:Reinforce", "never_imported:Reinforce"))
    with pytest.raises(UnsafeFile, match="learner 'never_imported:Reinforce' and env"):
        LoadedRun(run.path)
