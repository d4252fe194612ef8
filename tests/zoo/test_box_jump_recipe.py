"""The boxes' recipe: TAAC from config to report, windows, teams of any size."""

from pathlib import Path

import numpy as np
import pytest

from corral.errors import OptionError
from corral.train.recipes.resolve import resolve

pytest.importorskip("pettingzoo", reason="the boxes are a PettingZoo env")
pytest.importorskip("Box2D", reason="it simulates the boxes")

import few_updates
from few_updates import lead

from corral.train.run.checkpoint import Checkpoint
from corral.train.run.loaded_run import LoadedRun
from corral.train.run.start import begin, resume
from corral.train.sinks import jsonl
from corral.zoo.box_jump.drawn_boxes import DrawnBoxes
from corral.zoo.box_jump.recipe import build

FEW = few_updates.FEW | {
    **{"boxes": 2, "env_kwargs.max_timestep": 9, "taac.n_steps": 16},
    **{"taac.batch_size": 16, "taac.n_epochs": 1, "taac.hidden": 8},
    "taac.embedding": 4,
}
NO_DISPLAY = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_run_measures_heights_and_can_be_loaded():
    with begin("box_jump", FEW, out=Path("run")) as training:
        assert training.run() == 0
    assert Path("run/report.html").exists()
    measured = jsonl.read(Path("run/metrics.jsonl"))
    heights = [one["eval/height"] for one in measured if "eval/height" in one]
    assert heights and all(0 <= height < 5 for height in heights)
    ended = jsonl.read(Path("run/episodes.jsonl"))
    assert ended and {one["length"] for one in ended} == {10}
    with LoadedRun(Path("run")) as loaded:
        assert np.isfinite(loaded.evaluate(2, seed=5).mean)


def test_three_updates_and_one_more_are_four():
    settings = {**FEW, "boxes": [1, 2, 3]}
    whole = lead(begin("box_jump", settings, out=Path("whole")), 4)
    parts = lead(begin("box_jump", settings, out=Path("parts")), 3)
    lead(resume(parts.path, {}), 4)
    ours, theirs = Checkpoint.load(parts.last), Checkpoint.load(whole.last)
    assert ours.update == theirs.update == 4
    for name, weights in theirs.learner["net"].items():
        assert np.array_equal(ours.learner["net"][name], weights), name
    assert jsonl.read(parts.episodes) == jsonl.read(whole.episodes)


@pytest.mark.first
def test_processes_train_as_this_process_does():
    alone = lead(begin("box_jump", FEW, out=Path("alone")), 2)
    spread = {**FEW, "backend": "process", "workers": 2}
    beside = lead(begin("box_jump", spread, out=Path("beside")), 2)
    assert jsonl.read(alone.episodes) == jsonl.read(beside.episodes)
    ours, theirs = Checkpoint.load(alone.last), Checkpoint.load(beside.last)
    for name, weights in theirs.learner["net"].items():
        assert np.array_equal(ours.learner["net"][name], weights), name


def test_every_episode_draws_how_many_boxes_play():
    parts = build(resolve("box_jump", {**FEW, "boxes": [2, 3, 5], "num_envs": 8}))
    try:
        assert parts.learner.team.agents == 5
        rollout = parts.collector.collect(40)
        alive = rollout.obs["box"]["alive"].sum(-1)
        assert set(np.unique(alive).tolist()) == {2, 3, 5}
        assert np.isfinite(parts.learner.update(rollout)["value_loss"])
        assert parts.tasks("validation", 4) == [2, 3, 5, 2]
        result = parts.evaluate(3, seed=1)
        played = [next(iter(info.values()))["boxes"] for info in result.infos]
        assert played == [2, 3, 5]
    finally:
        parts.close()


def test_numbers_of_boxes_are_drawn_alike():
    drawn = [DrawnBoxes((3, 4))(0, 0, np.random.default_rng(n)) for n in range(200)]
    assert 70 < drawn.count(3) < 130 and drawn.count(3) + drawn.count(4) == 200


def test_the_best_policy_is_filmed():
    with begin(
        "box_jump", {**FEW, "video": "evaluations"}, out=Path("run")
    ) as training:
        rollout = training.collect()
        training.log(rollout, training.learn(rollout))
        training.evaluate()
        training.policy_videos.background.wait()
        assert training.policy_videos.background.trouble is None
    (video,) = Path("run/videos").iterdir()
    assert video.stat().st_size > 1000


def test_weights_of_another_run_are_a_beginning():
    first = lead(begin("box_jump", FEW, out=Path("first")), 2)
    with begin("box_jump", FEW, out=Path("next"), init_from=first.last) as training:
        start = training.parts.learner.policy.weights()
    saved = Checkpoint.load(first.last).learner["net"]
    for name, weights in start.items():
        assert np.array_equal(weights, saved[f"actor.{name}"]), name


# Windows ------------------------------------------------------------------------------


def test_a_window_brings_all_envs_into_this_process_and_says_so(monkeypatch, capsys):
    pytest.importorskip("pygame", reason="it opens the window")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    settings = {**FEW, "render": True, "backend": "process", "workers": 2}
    with begin("box_jump", settings, out=Path("run")) as training:
        parts = training.parts
        assert parts.pool.layout.backend == "serial"
        modes = [env.render_mode for env in parts.pool.envs]
        assert modes == ["human", None]
        parts.collector.collect(1)
    said = " ".join(capsys.readouterr().out.split())
    assert "render: true shows env 0, so all envs run in this process" in said


def test_a_window_without_a_display_is_refused_by_name(monkeypatch):
    for name in NO_DISPLAY:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OptionError, match="render: true opens a window, and there is"):
        build(resolve("box_jump", {**FEW, "render": True}))


# Settings -----------------------------------------------------------------------------


def test_a_yaml_file_says_everything():
    Path("boxes.yaml").write_text(
        "recipe: box_jump\n"
        "boxes: [4, 5, 6]\n"
        "env_kwargs: {reward_mode: highest_stable}\n"
        "taac: {heads: 8, embedding: 256, hidden: 512, learning_rate: 0.00005}\n"
    )
    config = resolve("boxes.yaml", {})
    assert config.boxes == config.choices == (4, 5, 6)
    assert config.env_kwargs["reward_mode"] == "highest_stable"
    assert config.env_kwargs["include_time"]  # the recipe's own stay
    assert (config.taac.heads, config.taac.lr) == (8, 5e-5)


def test_wrong_settings_are_refused_by_name():
    with pytest.raises(OptionError, match="set boxes instead"):
        build(resolve("box_jump", {**FEW, "env_kwargs.num_boxes": 3}))
    with pytest.raises(OptionError, match="boxes"):
        resolve("box_jump", {**FEW, "boxes": 0})
    with pytest.raises(OptionError, match="boxes"):
        resolve("box_jump", {**FEW, "boxes": []})
