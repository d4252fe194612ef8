"""Envs that sleep or compute for as long as they are told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LONG = 0.02
"""Seconds; a sleep never ends early, so nothing here depends on the machine's speed."""


class Slow(gymnasium.Env[Any, Any]):
    """Takes long where it is told to."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, step: float = 0.0, reset: float = 0.0) -> None:
        self._step, self._reset = step, reset

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        time.sleep(self._reset)
        self._left = 3
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(self._step)
        self._left -= 1
        return np.zeros(2, np.float32), 1.0, self._left == 0, False, {}


def slow_third() -> list[Callable[[], Any]]:
    return [Slow, Slow, lambda: Slow(step=LONG), Slow]


class Computing(Slow):
    """Takes its process so much time on a core, however long that is by the clock."""

    def step(self, action: Any) -> Any:
        until = time.process_time() + LONG
        while time.process_time() < until:
            pass
        return super().step(action)
