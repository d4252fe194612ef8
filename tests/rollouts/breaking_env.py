"""An env that breaks as it is told."""

from __future__ import annotations

import os
import signal
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FINE, RAISE, KILL = range(3)
LENGTH = 6


class Fragile(gymnasium.Env[Any, Any]):
    """Does what its action says; observes (its seed's draw, steps taken)."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        self._draw = self.np_random.random()
        return self._observe(), {}

    def _observe(self) -> Any:
        return np.array([self._draw, self._steps], np.float64)

    def step(self, action: Any) -> Any:
        if action == RAISE:
            raise ValueError("out of luck")
        if action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        self._steps += 1
        return self._observe(), 1.0, False, self._steps == LENGTH, {}
