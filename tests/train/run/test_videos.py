"""Films are made beside the training, which neither waits for them nor notices."""

import errno
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

import numpy as np
import psutil
import pytest
from running import wait_until
from small_runs import SMALL
from test_resuming import learnt, same

from corral.rollouts.evaluation import evaluate
from corral.train.run.checkpoint import Checkpoint
from corral.train.run.episode_video import BackgroundVideo, VideoScene
from corral.train.run.start import begin
from corral.train.run.time_split import TIME_PARTS
from corral.train.run.training import INTERRUPTED
from corral.train.sinks.video import KEPT_FRAMES, VideoFrames

SCALED = {**SMALL, "normalise_obs": True, "normalise_reward": True}
GATED = {**SCALED, "env": "run_envs:Gated", "evaluate_length": 20}


@pytest.fixture
def gate(here):
    """Who draws an env waits for it; a call lets one through."""
    os.mkfifo("gate")

    def opened():
        try:
            os.close(os.open("gate", os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            assert error.errno == errno.ENXIO  # nobody is there yet
            return False
        return True

    return lambda: wait_until(opened)


def update(training):
    rollout = training.collect()
    training.log(rollout, training.learn(rollout))


@pytest.mark.parametrize("learner", ["ppo", "sb3_ppo"])
def test_training_goes_on_while_a_video_is_recorded(gate, learner):
    """The training is the same; of the waiting videos, only the newest is recorded."""
    runs = []
    for video in ("evaluations", "never"):
        settings = {**GATED, "learner": learner, "video": video}
        with begin("cartpole", settings, out=Path(video)) as training:
            for _ in range(3):
                update(training)
                training.evaluate()
            if video == "evaluations":
                assert training.policy_videos.background.busy
                assert not list(Path("evaluations/videos").iterdir())
                gate()
            update(training)
            training.checkpoint()
            if video == "evaluations":
                gate()
                training.policy_videos.background.wait()
                assert training.policy_videos.background.trouble is None
        runs.append(training.directory)
    names = {path.name for path in Path("evaluations/videos").iterdir()}
    assert names == {"update-000001.gif", "update-000003.gif"}
    ours, theirs = (Checkpoint.load(run.last) for run in runs)
    assert same(ours.learner, theirs.learner)
    assert same(ours.normalisers, theirs.normalisers)
    assert learnt(runs[0]) == learnt(runs[1])


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("cartpole", SCALED),
        ("cartpole", {**SCALED, "ppo.memory": "gru", "ppo.memory_size": 4}),
        ("cartpole", {**SCALED, "learner": "sb3_ppo"}),
        ("grid_world", {**SMALL, "view": "shared", "env_kwargs": {"max_steps": 30}}),
    ],
)
def test_a_video_shows_what_was_learnt_when_it_was_asked_for(recipe, settings):
    def returns(policy, norm):
        options = {"episodes": 3, "seed": 7, "max_length": 50, "obs_norm": norm}
        return evaluate(policy, other, **options).returns

    # With this seed the second update changes what the likeliest actions return.
    settings = {**settings, "ppo.lr": 0.1, "seed": 3}
    with begin(recipe, settings, out=Path("run")) as training:
        parts = training.parts
        with parts.open_pool("serial", None) as other:
            update(training)
            scene = VideoScene.of(parts, seed=0)
            likeliest = parts.learner.policy.deterministic()
            then = returns(likeliest, parts.obs_norm)
            update(training)
            assert np.array_equal(returns(scene.policy, scene.obs_norm), then)
            assert not np.array_equal(returns(likeliest, parts.obs_norm), then)


def test_a_video_that_fails_is_told_once_and_ends_nothing(train, capsys):
    settings = {"env": "run_envs:Unseen", "video": "evaluations", "evaluate_length": 9}
    run = train(settings={**settings, "evaluate_every": 6})
    out = capsys.readouterr().out
    assert out.count("No video: ") == 1
    assert "RuntimeError" in out and "no screen." in out
    assert run.read_about()["state"] == "done"
    assert not list(run.videos.iterdir())


@pytest.mark.parametrize("env", ["Gated", "GatedBefore"])
def test_whatever_a_video_is_at_nothing_is_left_of_it(gate, env, capsys):
    before = set(psutil.Process().children(recursive=True))
    settings = {**GATED, "env": f"run_envs:{env}", "video": "evaluations"}
    with begin("cartpole", settings, out=Path("run")) as training:
        update(training)
        training.evaluate()
        wait_until(lambda: set(psutil.Process().children(recursive=True)) - before)
        assert training.interrupt() == INTERRUPTED
        assert not training.policy_videos.background.busy
        assert not set(psutil.Process().children(recursive=True)) - before
    assert not list(training.directory.videos.iterdir())
    assert "No video" not in capsys.readouterr().out


def test_ctrl_c_at_the_end_gives_up_the_video_and_nothing_else(gate, train, capsys):
    before = set(psutil.Process().children(recursive=True))
    here = threading.get_ident()

    def waits():
        frames = traceback.walk_stack(sys._current_frames()[here])
        return any(frame.f_code is BackgroundVideo.wait.__code__ for frame, _ in frames)

    def press():
        wait_until(lambda: set(psutil.Process().children(recursive=True)) - before, 80)
        wait_until(waits, 80)  # all of training lies between
        signal.pthread_kill(here, signal.SIGINT)

    somebody = threading.Thread(target=press)
    somebody.start()
    settings = {"env": "run_envs:Gated", "evaluate_length": 20, "video": "end"}
    run = train(settings=settings)
    somebody.join()
    assert "The video was skipped." in capsys.readouterr().out
    told = run.read_about()
    assert told["state"] == "done" and "final" in told
    assert not list(run.videos.iterdir())
    assert not set(psutil.Process().children(recursive=True)) - before


def test_the_wait_for_a_video_does_not_count_as_collecting(here):
    with begin("cartpole", SMALL, out=Path("run")) as training:
        update(training)
        split = dict.fromkeys(TIME_PARTS, 0.0) | {"env": 0.25, "learning": 0.75}
        text = training._compared(2.0, split)["faster"]
    assert text.startswith("Collecting ran at 64 steps/s")


def test_video_frames_are_pictures_alone_and_not_too_many():
    frames = VideoFrames()
    with pytest.raises(TypeError, match=r"render returned None; it must be uint8"):
        frames.add(None)
    with pytest.raises(TypeError, match=r"float64 of shape \(2, 2, 3\)"):
        frames.add(np.zeros((2, 2, 3)))
    for _ in range(KEPT_FRAMES):
        frames.add(np.zeros((2, 2, 3), np.uint8))
    assert (len(frames.frames), frames.stride) == (KEPT_FRAMES // 2, 2)


def test_video_frames_are_kept_although_drawn_on_one_canvas():
    frames, canvas = VideoFrames(), np.zeros((2, 2, 3), np.uint8)
    for shade in (10, 20):
        canvas[:] = shade
        frames.add(canvas)
    assert [int(frame.max()) for frame in frames.frames] == [10, 20]
