"""An env that can hang, and whose infos can be big."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium as gym
import numpy as np


class Env(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        info = {"big": np.zeros(1_000_000)} if action == 1 else {}
        return np.zeros(2, np.float32), 1.0, False, False, info

    def hang(self):
        time.sleep(600)

    def pid(self):
        return os.getpid()
