"""The checks pass what is right and name what is wrong."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import corral
from corral.testing import KnownAnswers, check_env, check_executor


def test_a_sound_env_passes() -> None:
    report = check_env("CartPole-v1", steps=50)
    assert report, str(report)


def test_an_env_with_known_answers_passes() -> None:
    assert check_env(KnownAnswers, steps=50)


class Careless(gymnasium.Env[Any, Any]):
    """Leaves its space, and answers differently every time."""

    observation_space = spaces.Box(0, 1, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.random.default_rng().uniform(2, 3, 1), {}

    def step(self, action: Any) -> Any:
        return np.random.default_rng().uniform(2, 3, 1), 0.0, False, False, {}


def test_what_an_env_does_wrong_is_named() -> None:
    report = check_env(Careless, steps=5, process=False, raises=False)
    assert not report
    assert "equal seeds" in str(report)
    with pytest.raises(corral.errors.CorralError, match="equal seeds"):
        check_env(Careless, steps=5, process=False)


class Sound(gymnasium.Env[Any, Any]):
    """Does everything right; those below do one thing wrong."""

    observation_space: spaces.Space[Any] = spaces.Box(0, 1, (1,), np.float64)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.random(1), {}

    def step(self, action: Any) -> Any:
        return self.np_random.random(1), 0.0, False, False, {}


class CannotBeBuilt(Sound):
    def __init__(self) -> None:
        raise LookupError("no licence")


class ReturnsFour(Sound):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


class KeepsALock(Sound):
    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"lock": threading.Lock()}


class ClosesOnce(Sound):
    closed = False

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True


class Wanders(Sound):
    """What a reset leaves as it was shows in the next episode."""

    at = 0.0

    def step(self, action: Any) -> Any:
        self.at += 0.01
        return np.array([self.at]), 0.0, False, False, {}


class LeavesItsSpace(Sound):
    def step(self, action: Any) -> Any:
        return np.array([2.0]), 0.0, False, False, {}


class DrawsGlobally(Sound):
    def step(self, action: Any) -> Any:
        return np.random.random(1), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("env", "verdict", "part", "says"),
    [
        (CannotBeBuilt, "failed", "an environment is built", "LookupError: no licence"),
        (ReturnsFour, "failed", "reset and step", "a tuple of 4 values"),
        (KeepsALock, "failed", "infos", "leave such entries out, or request"),
        (ClosesOnce, "failed", "close works", "let close() be called twice"),
        (Wanders, "failed", "equal seeds", "reset with the same seed"),
        (LeavesItsSpace, "warning", "observations", "its space says 0 to 1"),
        (DrawsGlobally, "warning", "global generators", "isolate_rng=True"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_each_part_of_it_can_fail(env, verdict, part, says) -> None:
    report = check_env(env, steps=20, process=False, raises=False)
    (found,) = (one for one in report.findings if one.name.startswith(part))
    assert (found.verdict, says in str(found)) == (verdict, True), str(report)
    assert bool(report) == (verdict == "warning")


def test_an_env_without_seeds_can_be_checked_for_the_rest() -> None:
    report = check_env(Undecided, steps=5, process=False, deterministic=False)
    assert report and "skipped  a pool in this process" in str(report)


class Undecided(Sound):
    def step(self, action: Any) -> Any:
        return np.random.default_rng().random(1), 0.0, False, False, {}


@pytest.mark.first
@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_every_executor_passes(backend: str) -> None:
    workers = 1 if backend == "serial" else 2
    report = check_executor(backend, workers=workers)
    assert report, str(report)
