"""The two recipes in PyBullet: from config to report, with a few steps of learning."""

import os
import signal
from operator import attrgetter
from pathlib import Path

import pytest
from few_updates import FEW_OF_PPO

from corral.train.run.checkpoint import Checkpoint
from corral.train.run.start import begin

pytest.importorskip("pybullet", reason="the simulator; it has wheels up to Python 3.11")
pytest.importorskip("stable_baselines3", reason="its PPO is what learns here")

FEW = FEW_OF_PPO | {
    **{"backend": "auto", "total_steps": 64},
    **{"evaluate_episodes": 1, "final_episodes": 0},
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_pendulums_share_a_process_and_are_filmed():
    settings = {**FEW, "backend": "serial", "video": "end"}
    with begin("bullet_pendulum", settings, out=Path("run")) as training:
        assert training.run() == 0
        assert training.parts.pool.layout.workers == 1
    moment = Checkpoint.load(Path("run/checkpoints/best.pt"))
    assert moment.normalisers["obs"]["count"] > 32  # VecNormalize comes along
    assert Path("run/checkpoints/best_vecnormalize.pkl").exists()
    assert Path("run/videos/best.gif").stat().st_size > 1000


def test_without_a_curriculum_episodes_begin_as_far_off_as_they_ever_do():
    from corral.zoo.upkie.recipe import Config, init_rand_at

    config = Config(curriculum_steps=0, env_kwargs={"init_rand": {"pitch": 0.2}})
    assert init_rand_at(config, 0) == {"pitch": 0.2}


@pytest.mark.first
def test_robots_get_a_process_each_and_are_led_into_trouble_step_by_step():
    pytest.importorskip("upkie", reason="the robot: pip install 'corral[upkie]'")
    # Nothing of this module, which workers would import, and torch with it.
    most_pitch = attrgetter("unwrapped.init_state.randomization.pitch")
    settings = {**FEW, "curriculum_steps": 128}
    with begin("upkie", settings, out=Path("run")) as training:
        pool = training.parts.pool
        assert pool.layout.workers == 2
        # On a busy machine the trial may end before it has seen why.
        assert "one process per slot, since" in pool.layout.reason
        for part in (0.0, 0.25):
            training.learn(training.collect())
            assert pool.apply(most_pitch) == pytest.approx((0.2 * part,) * 2)
        training.checkpoint()
        assert Checkpoint.load(training.directory.last).normalisers["obs"]["count"] > 32


@pytest.mark.slow
def test_a_robot_that_is_restarted_is_led_on_from_there():
    pytest.importorskip("upkie", reason="the robot: pip install 'corral[upkie]'")

    def doom(env):
        env.unwrapped.step = lambda action: os.kill(os.getpid(), signal.SIGKILL)

    asked = {"curriculum_steps": 128, "on_fault": "restart", "isolation": "slot"}
    with begin("upkie", {**FEW, **asked}, out=Path("run")) as training:
        pool = training.parts.pool
        training.learn(training.collect())
        pool.apply(doom, slots=[1])
        assert training.collect().valid.sum(axis=0).tolist() == [16, 15]
        most_pitch = attrgetter("unwrapped.init_state.randomization.pitch")
        assert pool.apply(most_pitch) == pytest.approx((0.2 * 0.25,) * 2)
        assert abs(pool.observe()[1, 0]) < 0.1
