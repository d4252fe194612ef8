"""MuJoCo's profiler is stopped in worker processes, and nowhere else."""

from __future__ import annotations

import sys
import time
from typing import Any, ClassVar

import pytest

import corral
from corral.engine.worker.profilers import stop_profilers

gymnasium = pytest.importorskip("gymnasium")
mujoco = pytest.importorskip("mujoco")


def make_pendulum() -> Any:
    return gymnasium.make("InvertedPendulum-v5")


def make_timed_pendulum() -> Any:
    mujoco.set_mjcb_time(time.perf_counter)
    return make_pendulum()


class Falls(gymnasium.Wrapper):  # type: ignore[misc]
    """Raises in the first step of a process."""

    fell: ClassVar[bool] = False

    def step(self, action: Any) -> Any:
        if not Falls.fell:
            Falls.fell = True
            raise RuntimeError("it fell")
        return super().step(action)


def make_falling() -> Any:
    # Starts the package's own clock, where building an env does not do so anyway.
    mujoco.set_mjcb_time(None)
    return Falls(make_pendulum())


def make_falling_batch(num_envs: int) -> Any:
    disabled = gymnasium.vector.AutoresetMode.DISABLED
    makes = [make_falling] * num_envs
    return gymnasium.vector.SyncVectorEnv(makes, autoreset_mode=disabled)


def timings_of_all(envs: Any) -> list[tuple[float, int]]:
    return [timings(env) for env in envs.envs]


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


@pytest.mark.parametrize("batched", [False, True])
def test_nor_are_those_of_an_env_that_took_the_place_of_one_that_raised(
    batched: bool,
) -> None:
    make = make_falling_batch if batched else make_falling
    options: dict[str, Any] = {"backend": "process", "workers": 1, "batched": batched}
    pool = corral.Pool(make, 2, seed=0, on_fault="restart", **options)
    try:
        pool.reset()
        fell = pool.step([[0.1], [-0.1]]).infos.to_list(2)
        assert "fault" in {key for info in fell for key in info}
        pool.step([[0.1], [-0.1]])
        pool.step([[0.1], [-0.1]])
        [timed, _] = pool.apply(timings_of_all if batched else timings)
    finally:
        pool.close()
    for duration, steps in timed if batched else [timed]:
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
        stop_profilers()
        assert mujoco.get_mjcb_time() is time.perf_counter
    finally:
        mujoco.set_mjcb_time(None)


def test_an_unknown_mujoco_goes_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mujoco, "_callbacks")
    stop_profilers()
    monkeypatch.delitem(sys.modules, "mujoco")
    stop_profilers()
