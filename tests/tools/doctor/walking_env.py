"""A walk that depends on all that was done, and ways to end it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np


class Walk(gym.Env[Any, Any]):
    """Its position depends on seed, task and every action; it ends as it is told."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, deed: Callable[[], Any] | None = None, last: int = 12) -> None:
        self.deed, self.last = deed, last

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.position = self.np_random.normal(size=2)
        self.about = dict(options or {})
        if self.about.get("fail"):
            raise LookupError(f"no way from {self.position.tolist()}")
        return self.position.copy(), {}

    def step(self, action):
        self.steps += 1
        self.position = 0.9 * self.position + action + 0.1 * self.np_random.normal()
        if self.steps == self.last and self.deed is not None:
            return self.deed()
        if self.steps == self.last:
            raise ArithmeticError(f"{self.position.tolist()} {self.about}")
        return self.position.copy(), 0.0, False, False, {}

    def ask(self, number):
        raise KeyError(f"{number} at {self.position.tolist()}")


def crash() -> None:
    ctypes.string_at(0)


def hang() -> None:
    time.sleep(600)


def unfit() -> Any:
    return np.zeros(5), 0.0, False, False, {}
