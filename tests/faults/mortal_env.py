"""An env that ends its process as it is told."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np

DIE, EXIT, LEAVE, HANG = 1, 2, 3, 4


class Mortal(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        if options and options.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if action == DIE:
            print("about to die")
            os.kill(os.getpid(), signal.SIGKILL)
        if action == EXIT:
            os._exit(3)
        if action == LEAVE:
            sys.exit("I am off")
        if action == HANG:
            self.hang()
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def pid(self):
        return os.getpid()

    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self):
        time.sleep(600)
