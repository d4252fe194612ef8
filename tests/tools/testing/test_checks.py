"""The checks pass what is right and name what is wrong."""

from __future__ import annotations

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


@pytest.mark.first
@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_every_executor_passes(backend: str) -> None:
    workers = 1 if backend == "serial" else 2
    report = check_executor(backend, workers=workers)
    assert report, str(report)
