"""MuJoCo's profiler is stopped in worker processes, and nowhere else."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

import corral
from corral.workers.profilers import stop_profilers

gymnasium = pytest.importorskip("gymnasium")
mujoco = pytest.importorskip("mujoco")


def make_pendulum() -> Any:
    return gymnasium.make("InvertedPendulum-v5")


def make_timed_pendulum() -> Any:
    mujoco.set_mjcb_time(time.perf_counter)
    return make_pendulum()


def timings(env: Any) -> tuple[float, int]:
    """What the profiler says of mj_step."""
    timer = env.unwrapped.data.timer[mujoco.mjtTimer.mjTIMER_STEP]
    return timer.duration, timer.number


def played(make: Any, **options: Any) -> list[tuple[float, int]]:
    pool = corral.Pool(make, 2, seed=0, **options)
    try:
        pool.reset()
        for _ in range(3):
            step = pool.step([[0.1], [-0.1]])
        assert not step.started.any()  # a reset would have cleared the timers
        return list(pool.apply(timings))
    finally:
        pool.close()


def test_steps_in_a_worker_process_are_not_timed() -> None:
    for duration, steps in played(make_pendulum, backend="process", workers=1):
        assert duration == 0 and steps > 0


def test_in_your_own_process_they_are_as_they_were() -> None:
    alone = make_pendulum()
    alone.reset(seed=0)
    alone.step([0.1])
    timed = timings(alone)[0] > 0  # older versions do not
    for duration, steps in played(make_pendulum, backend="serial"):
        assert (duration > 0) == timed and steps > 0


def test_a_clock_that_an_env_has_set_stays() -> None:
    for duration, steps in played(make_timed_pendulum, backend="process", workers=1):
        assert duration > 0 and steps > 0


def test_a_clock_of_your_own_is_not_touched() -> None:
    mujoco.set_mjcb_time(time.perf_counter)
    try:
        assert not stop_profilers()
        assert mujoco.get_mjcb_time() is time.perf_counter
    finally:
        mujoco.set_mjcb_time(None)


def test_an_unknown_mujoco_goes_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mujoco, "_callbacks")
    assert not stop_profilers()
    monkeypatch.delitem(sys.modules, "mujoco")
    assert not stop_profilers()
