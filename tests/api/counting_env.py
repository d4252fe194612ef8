"""An env that counts its steps and breaks as it is told."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FINE, RAISE, LEAVE, KILL, HANG = range(5)
LENGTH = 5


class Counting(gymnasium.Env[Any, Any]):
    """Does what its action says; observes its steps; episodes of five."""

    observation_space = spaces.Box(0, LENGTH, (1,), np.float32)
    action_space = spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        if action == RAISE:
            raise ValueError("not that one")
        if action == LEAVE:
            sys.exit(2)
        if action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == HANG:
            time.sleep(600)
        self._steps += 1
        obs = np.full(1, self._steps, np.float32)
        return obs, float(self._steps), self._steps == LENGTH, False, {}

    def pid(self) -> int:
        return os.getpid()
