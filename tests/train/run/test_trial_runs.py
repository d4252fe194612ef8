"""A run trains on trials of tasks, with any learner, and evaluates on other tasks."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_resuming import lead, same

from corral.errors import OptionError
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.loaded_run import LoadedRun
from corral.train.run.start import begin, resume
from corral.train.sinks import jsonl
from corral.zoo.meta.making import make_env

SMALL = {
    "backend": "serial",
    "num_envs": 2,
    "total_steps": 480,
    "evaluate_every": 2,
    "evaluate_episodes": 3,
    "final_episodes": 2,
    "checkpoint_every": 2,
    "video": "never",
    "trials.train_tasks": 4,
    "trials.eval_tasks": 2,
}
SAC = {
    **SMALL,
    "sac.architecture": "memory",
    "sac.episodes": 1,
    "sac.random_episodes": 1,
    "sac.updates": 1,
    "sac.hidden": [4],
    "sac.memory_size": 4,
    "sac.batch_size": 2,
}
PPO = {
    **SMALL,
    "learner": "ppo",
    "ppo.memory": "gru",
    "ppo.memory_size": 4,
    "ppo.hidden": [4],
    "ppo.n_steps": 60,
    "ppo.batch_size": 60,
    "ppo.n_epochs": 1,
    "trials.previous": True,
}


def test_a_run_of_trials_is_trained_resumed_and_evaluated():
    whole = lead(begin("point_robot", SAC, out=Path("whole")), 4)
    parts = lead(begin("point_robot", SAC, out=Path("parts")), 3)
    with resume(parts.path, {}) as training:
        assert training.run() == 0
    ours, theirs = Checkpoint.load(parts.last), Checkpoint.load(whole.last)
    assert same(ours.learner, theirs.learner)
    assert ours.results == theirs.results
    metrics = jsonl.read(parts.metrics)
    measured = next(line for line in metrics if "eval/return" in line)
    assert measured["eval/return"] == pytest.approx(
        measured["eval/return_1"] + measured["eval/return_2"]
    )
    assert measured["eval/length"] == 120
    told = parts.read_about()["adaptation"]
    assert len(told["returns"]) == len(told["deviations"]) == 2
    assert sum(told["returns"]) == pytest.approx(parts.read_about()["final"])
    assert told["still"] is not None and told["goal_radius"] == 0.2
    first, last = told["paths"][0]["episodes"]
    assert len(first) == len(last) == 60
    assert np.linalg.norm(told["paths"][0]["goal"]) == pytest.approx(1)
    page = parts.report.read_text()
    assert page.index("Learning curve") < page.index("Adaptation")
    assert "Paths of the best policy" in page
    with LoadedRun(parts.path) as loaded:
        assert len(loaded.evaluate(3, 0)) == 3


def test_tasks_are_those_of_the_seed():
    with begin("point_robot", SAC, out=Path("run")) as training:
        parts = training.parts
        table = make_env(
            "PointRobotSparse-v0", 2, seed=0, num_train_tasks=4, num_eval_tasks=2
        )
        test, validation = parts.tasks("test", 5), parts.tasks("validation", 5)
        assert np.array_equal(test[:2], table.eval_tasks)
        assert np.array_equal(test[2:4], table.eval_tasks)
        assert np.array_equal(parts.pool.sample_task.train, table.train_tasks)
        assert not np.isin(validation, [*test, *table.train_tasks]).any()
        drawn = parts.pool.sample_task(0, 0, np.random.default_rng(0))
        assert any((drawn == task).all() for task in table.train_tasks)


def test_recurrent_ppo_sees_previous_actions_and_rewards():
    run = lead(begin("point_robot", PPO, out=Path("run")), 2)
    # x and y, the flag, the previous action and its reward
    assert "(6,)" in Checkpoint.load(run.last).observation_space
    assert "eval/return_2" in Checkpoint.load(run.last).results


def test_an_env_without_tasks_is_told_or_has_none():
    settings = {**SMALL, "learner": "sac", "trials": 2}
    plain = {key: settings[key] for key in settings if "." not in key}
    plain["normalise_reward"] = False
    with pytest.raises(OptionError, match=r"has no sample_tasks\(count, rng\)"):
        begin("pendulum", plain, out=Path("run"))
    none = plain | {"trials": {"train_tasks": 0}}
    with begin("pendulum", none, out=Path("run")) as training:
        assert training.parts.tasks("test", 2) is None
        assert training.parts.pool.spec.observation_space.shape == (4,)


GRAY_ENVS = '''
import gymnasium
import numpy as np


class Gray(gymnasium.Env):
    """Draws its task: a shade of gray."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    metadata = {"render_modes": ["rgb_array"]}
    shade = 0

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def sample_tasks(self, count, rng):
        return [int(shade) for shade in rng.permutation(np.arange(40, 240, 10))[:count]]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), float(self.shade), False, self.steps == 3, {}

    def render(self):
        return np.full((16, 16, 3), self.shade, np.uint8)


def choose(env, task):
    env.unwrapped.shade = task
'''
GRAY = {
    **SAC,
    "env": "gray_envs:Gray",
    "total_steps": 24,
    "video": "end",
    "trials.task_by": "gray_envs:choose",
}


def test_a_video_shows_the_first_task_of_the_final_evaluation(monkeypatch):
    Path("gray_envs.py").write_text(GRAY_ENVS)
    monkeypatch.delitem(sys.modules, "gray_envs", raising=False)
    with begin("point_robot", GRAY, out=Path("run")) as training:
        assert training.run() == 0
        run = training.directory
    with LoadedRun(run.path) as loaded:
        (task,) = loaded.parts.tasks("test", 1)
    with Image.open(run.videos / "best.gif") as video:
        frame = np.asarray(video.convert("L"))
    assert abs(int(frame[8, 8]) - task) <= 4 and task >= 40
    assert run.read_about()["video_task"] == str(task)
    assert f"One episode of task {task}, deterministic" in run.report.read_text()


def test_a_run_collects_in_groups_of_equal_trials():
    settings = {**SAC, "repeat": 2, "sac.episodes": 4, "total_steps": 960}
    run = lead(begin("point_robot", settings, out=Path("run")), 2)
    seeds = [line["seed"] for line in jsonl.read(run.episodes)]
    assert seeds[::2] == seeds[1::2] and len(set(seeds)) == 4
    with LoadedRun(run.path, num_envs=1) as loaded:
        assert len(loaded.evaluate(2, 0)) == 2
    with pytest.raises(OptionError, match="repeat is 2, and an update learns from 3"):
        begin("point_robot", {**settings, "sac.episodes": 3}, out=Path("odd"))
    with pytest.raises(OptionError, match="num_envs is 3 and repeat is 2"):
        begin("point_robot", {**settings, "num_envs": 3}, out=Path("three"))
