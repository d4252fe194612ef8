"""An env that observes its actions, and breaks as they say."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FINE, RAISE, KILL, HANG, LEAVE = range(5)


class Marked(gymnasium.Env[Any, Any]):
    """Does what an action's last digit says; observes the rest of it and its steps."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(10_000)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        what = int(action) % 10
        if what == RAISE:
            raise ValueError(f"not {action}")
        if what == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if what == HANG:
            time.sleep(600)
        if what == LEAVE:
            sys.exit(1)
        self._steps += 1
        return np.array([action // 10, self._steps]), 1.0, False, False, {}
