"""An env that tells where it runs."""

from __future__ import annotations

import os

import gymnasium
import numpy as np


class Teller(gymnasium.Env):
    """Tells where it runs, in an info that no column holds, and in its log."""

    observation_space = gymnasium.spaces.Box(0.0, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(1, np.float32), {"where": f"reset {os.getpid()}"}

    def step(self, action):
        self.steps += 1
        observation = np.full(1, self.steps, np.float32)
        return observation, 0.0, False, False, {"where": f"step {os.getpid()}"}
