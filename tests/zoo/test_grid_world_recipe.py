"""The grid world's recipe: two views of the same envs, from config to report."""

from pathlib import Path

import numpy as np
import pytest

from corral.errors import OptionError
from corral.train.recipes.resolve import resolve

pytest.importorskip("pettingzoo", reason="the grid world is a PettingZoo env")
pytest.importorskip("stable_baselines3", reason="its PPO is what learns here")

from few_updates import FEW_OF_PPO, lead

from corral.train.run.checkpoint import Checkpoint
from corral.train.run.loaded_run import LoadedRun
from corral.train.run.parts import build_run
from corral.train.run.start import begin, resume
from corral.train.sinks import jsonl
from corral.zoo.grid_world.training_env import make

FEW = FEW_OF_PPO | {"env_kwargs": {"size": 6, "ground": 2, "air": 1, "max_steps": 20}}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("view", ["flattened", "shared"])
def test_a_run_leaves_its_folder_and_can_be_loadeded(view):
    with begin("grid_world", {**FEW, "view": view}, out=Path("run")) as training:
        assert training.run() == 0
        rows = training.parts.learner.model.env.num_envs
    assert rows == (2 if view == "flattened" else 6)
    assert Path("run/report.html").exists()
    assert Checkpoint.load(Path("run/checkpoints/best.pt")).steps > 0
    ended = jsonl.read(Path("run/episodes.jsonl"))
    assert ended and all(1 <= one["length"] <= 20 for one in ended)
    with LoadedRun(Path("run")) as loaded:
        again = loaded.evaluate(2, seed=5)
    assert np.isfinite(again.mean)


def test_three_updates_of_a_shared_policy_and_one_more_are_four():
    settings = {**FEW, "view": "shared"}
    whole = lead(begin("grid_world", settings, out=Path("whole")), 4)
    parts = lead(begin("grid_world", settings, out=Path("parts")), 3)
    lead(resume(parts.path, {}), 4)
    ours, theirs = Checkpoint.load(parts.last), Checkpoint.load(whole.last)
    assert ours.update == theirs.update == 4
    for name, weights in theirs.learner["net"].items():
        assert np.array_equal(ours.learner["net"][name], weights), name
    assert jsonl.read(parts.episodes) == jsonl.read(whole.episodes)


def test_slot_0_is_filmed_at_every_evaluation():
    settings = {**FEW, "view": "shared", "video": "evaluations"}
    with begin("grid_world", settings, out=Path("run")) as training:
        rollout = training.collect()
        training.log(rollout, training.learn(rollout))
        training.evaluate()
        training.policy_videos.background.wait()
    (video,) = Path("run/videos").iterdir()
    assert video.name == "update-000001.gif"
    assert video.stat().st_size > 1000


def test_one_env_runs_in_the_process_that_trains():
    settings = {**FEW, "num_envs": 1, "backend": "auto"}
    parts = build_run(resolve("grid_world", settings))
    try:
        assert parts.pool.layout.backend == "serial"
        assert parts.pool.envs[0].possible_agents == ["ground_0", "ground_1", "air_0"]
    finally:
        parts.pool.close()


def test_a_yaml_file_says_everything():
    Path("grid.yaml").write_text(
        "recipe: grid_world\n"
        "view: shared\n"
        "num_envs: 4\n"
        "env_kwargs: {size: large, ground: 1, air: 2, goal: true, watch: 0.3}\n"
        "ppo: {lr: 0.0001}\n"
    )
    config = resolve("grid.yaml", {})
    assert (config.view, config.num_envs, config.ppo.lr) == ("shared", 4, 1e-4)
    env = make(**config.env_kwargs)
    assert env.rules.size == 20
    assert env.rules.watch == 0.3
    assert env.possible_agents == ["ground_0", "air_0", "air_1"]


@pytest.mark.parametrize("view", ["joint", "shared"])
def test_corrals_ppo_learns_it_too(view):
    settings = {**FEW, "learner": "ppo", "view": view, "total_steps": 32}
    with begin("grid_world", settings, out=Path("run")) as training:
        assert training.run() == 0
    ended = jsonl.read(Path("run/episodes.jsonl"))
    assert all("info/return/air_0" in one for one in ended)


def test_a_mean_of_rewards_is_joined_where_the_env_is_made():
    env_kwargs = {**FEW["env_kwargs"], "reward": "mean"}
    parts = build_run(resolve("grid_world", {**FEW, "env_kwargs": env_kwargs}))
    parts.close()
    assert parts.pool.spec.action_space.shape == (3,)
    settings = {**FEW, "view": "shared", "env_kwargs": env_kwargs}
    with pytest.raises(OptionError, match=r"view is 'shared', and .* has one agent"):
        build_run(resolve("grid_world", settings))
