"""An env that waits in every step, as for a server."""

import time

import gymnasium
import numpy as np


class Waiting(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        time.sleep(0.005)
        return np.zeros(2, np.float32), 1.0, False, False, {}
