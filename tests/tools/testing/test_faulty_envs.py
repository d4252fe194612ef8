"""Each public faulty env fails in its way and no other, and is exact until then."""

from __future__ import annotations

import functools
import logging
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest

import corral
from corral.errors import EnvError, OptionError, StartError, WorkerDied, WorkerHung
from corral.testing import (
    ODD_SPACES,
    WAYS,
    Crashing,
    Hanging,
    KnownAnswers,
    Leaking,
    Noisy,
    OddSpaces,
    OnPurpose,
    Slow,
    check_env,
    fail,
    known_answers,
)

RAISED = {"raise": "OnPurpose", "exit": "SystemExit"}
DEAD = {
    "os_exit": (3, None),
    "kill": (-signal.SIGKILL, "SIGKILL"),
    "segfault": (-signal.SIGSEGV, "SIGSEGV"),
    "abort": (-signal.SIGABRT, "SIGABRT"),
}
HUNG = ("hang", "hang_in_c")


def played(env: gymnasium.Env[Any, Any], steps: int, seed: int = 5) -> None:
    """Take so many steps, and see that each answer is the one that is known."""
    actions = list(range(steps))
    first, *answers = known_answers(seed, actions, mean_length=10**9)
    np.testing.assert_array_equal(env.reset(seed=seed)[0], first.obs)
    for action, answer in zip(actions, answers, strict=True):
        obs, reward, terminated, truncated, info = env.step(action)
        np.testing.assert_array_equal(obs, answer.obs)
        assert (reward, terminated, truncated) == (answer.reward, False, False)
        assert info == answer.info


def test_every_way_is_tried_here() -> None:
    assert set(WAYS) == {*RAISED, *DEAD, *HUNG}


@pytest.mark.parametrize("how", RAISED)
def test_one_that_raises_does_so_after_as_many_steps_as_it_was_told(how: str) -> None:
    env = Crashing(how, after=3, mean_length=10**9)
    played(env, 3)
    with pytest.raises((OnPurpose, SystemExit), match="on purpose"):
        env.step(0)


@pytest.mark.parametrize("how", [*RAISED, *DEAD, *HUNG])
def test_every_way_is_the_fault_that_it_says(how: str) -> None:
    env = functools.partial(Crashing, how, after=2, mean_length=10**9)
    options = {"backend": "process", "workers": 1, "step_timeout": 0.5}
    with corral.Pool(env, 1, seed=1, **options) as pool:
        pool.reset()
        pool.step([1])
        pool.step([2])
        error: Any = EnvError if how in RAISED else WorkerDied
        with pytest.raises(WorkerHung if how in HUNG else error) as caught:
            pool.step([3])
    fault = caught.value.fault
    assert (fault.command, fault.slot, fault.step) == ("step", 0, 3)
    if how in RAISED:
        assert fault.error_type == RAISED[how]
    elif how in DEAD:
        assert (fault.exit_code, fault.signal_name) == DEAD[how]
    else:
        assert f"in _{how}" in fault.stack  # also with the GIL held


@pytest.mark.parametrize("at", ["construct", "reset", "close"])
def test_it_fails_at_the_moment_that_was_chosen(at: str) -> None:
    with pytest.raises(OnPurpose):
        env = Crashing(at=at)
        assert at != "construct"
        env.reset(seed=1)
        assert at != "reset"
        env.step(0)
        env.close()


def test_a_failing_constructor_is_a_start_error() -> None:
    with pytest.raises(StartError, match="OnPurpose"):
        corral.Pool(functools.partial(Crashing, at="construct"), 2, backend="serial")


def test_chances_are_the_episodes_own() -> None:
    def failing_steps(seed: int) -> list[int]:
        found = []
        for episode in range(20):
            env = Crashing(probability=0.1, seed=seed, mean_length=10**9)
            env.reset(seed=episode)
            steps = 0
            try:
                while steps < 200:
                    env.step(0)
                    steps += 1
            except OnPurpose:
                found.append(steps)
        return found

    assert failing_steps(1) == failing_steps(1) != failing_steps(2)
    assert len(failing_steps(1)) == 20 and len(set(failing_steps(1))) > 5


def test_failures_are_counted_over_all_envs(tmp_path: Path) -> None:
    make = functools.partial(Crashing, times=2, counter=tmp_path / "count")
    for _ in range(2):
        env = make(mean_length=10**9)
        env.reset(seed=1)
        with pytest.raises(OnPurpose):
            env.step(0)
    played(make(mean_length=10**9), 5)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"how": "explode"}, "choose one of raise"),
        ({"at": "lunch"}, "choose one of construct"),
        ({"at": "close", "probability": 0.5}, "belongs to none"),
        ({"times": 3}, "give both"),
    ],
)
def test_what_has_no_meaning_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Crashing(**options)
    with pytest.raises(OptionError, match="choose one of"):
        fail("explode")
    with pytest.raises(
        OptionError, match="an odd space is 'square'; choose one of scalar"
    ):
        OddSpaces("square")


@pytest.mark.parametrize("holding_gil", [False, True])
def test_one_that_hangs_in_a_reset_is_ended_by_its_deadline(holding_gil: bool) -> None:
    env = functools.partial(Hanging, "reset", 1, holding_gil=holding_gil)
    with corral.Pool(env, 1, backend="process", reset_timeout=0.5) as pool:
        pool.reset()
        with pytest.raises(WorkerHung, match="reset"):
            pool.reset()


def test_one_that_leaks_is_exact_and_grows() -> None:
    env = functools.partial(Leaking, 2**23, mean_length=10**9)
    with corral.Pool(env, 1, backend="process") as pool:
        (pid,) = pool.apply(lambda env: os.getpid())
        pool.reset()
        before = psutil.Process(pid).memory_info().rss
        for _ in range(8):
            pool.step([0])
        assert psutil.Process(pid).memory_info().rss - before >= 7 * 2**23
    tiny = Leaking(1, mean_length=10**9)
    played(tiny, 4)


def test_one_that_is_slow_takes_at_least_its_time() -> None:
    env = functools.partial(Slow, 0.02, 0.03, mean_length=10**9)
    with corral.Pool(env, 1, backend="serial", seed=0) as pool:
        pool.reset()
        pool.step([0])
        stats = pool.stats()
    assert stats.step.mean[0] >= 0.02 and stats.reset.mean[0] >= 0.03
    played(Slow(0.0, spread=True, mean_length=10**9), 4)


def test_one_that_is_noisy_is_heard_and_exact(capfd, caplog) -> None:
    caplog.set_level(logging.DEBUG, "corral.testing.noisy")
    env = Noisy(lines=2, width=5, mean_length=10**9)
    played(env, 2)
    out, err = capfd.readouterr()
    assert out.count("built xxxxx") == err.count("built xxxxx") == 2
    assert out.count("step 1 xxxxx") == 2 and "half a line" in out
    assert [record.getMessage() for record in caplog.records].count("built xxxxx") == 2


def test_one_that_is_noisy_holds_up_no_pool(capfd) -> None:
    env = functools.partial(Noisy, 50, 2000, mean_length=10**9)
    with corral.Pool(env, 2, backend="process", workers=2, seed=3) as pool:
        pool.reset(seeds=[7, 8])
        for _ in range(5):
            step = pool.step([1, 2])
    for slot, action in enumerate((1, 2)):
        answers = known_answers(7 + slot, [action] * 5, mean_length=10**9)
        np.testing.assert_array_equal(step.obs[slot], answers[-1].obs)


@pytest.mark.filterwarnings("ignore:.*Casting input x:UserWarning")
@pytest.mark.parametrize("name", ODD_SPACES)
def test_odd_spaces_are_sound_envs(name: str) -> None:
    assert check_env(functools.partial(OddSpaces, name), steps=8, process=False)


def test_odd_spaces_refuse_an_action_that_is_another() -> None:
    env = OddSpaces("dice", "bits")
    env.reset(seed=1)
    with pytest.raises(ValueError, match="is not in"):
        env.step(np.full((2, 3), 7, np.int8))


def test_known_answers_change_with_seed_task_and_every_action() -> None:
    def last(seed: int, actions: list[int], task: Any = None) -> bytes:
        answers = known_answers(seed, actions, task, mean_length=10**9)
        return bytes(answers[-1].obs.tobytes())

    seen = [
        last(1, [1, 2, 3]),
        last(2, [1, 2, 3]),
        last(1, [1, 3, 2]),
        last(1, [1, 2, 4]),
        last(1, [1, 1, 2, 3]),
        last(1, [1, 2, 3], "hills"),
    ]
    assert len(set(seen)) == len(seen)
    played(KnownAnswers(mean_length=10**9), 6)
