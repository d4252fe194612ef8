"""An env that writes down what becomes of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

RAISE, EXIT, END = 1, 2, 3


class Diary(gym.Env[Any, Any]):
    """One that raises, exits or ends its episode when told to."""

    action_space = gym.spaces.Discrete(4)

    def __init__(self, path: Path, **odd: Any):
        self.path = path
        self.number = 0
        while self._exists(self.number):
            self.number += 1
        self.write("built")
        self.odd = odd
        if odd.get("build") == self.number:
            raise ValueError("as asked")
        size = 3 if odd.get("space") == self.number else 2
        self.observation_space = gym.spaces.Box(-1, 1, (size,))

    def _exists(self, number: int) -> bool:
        try:
            (self.path / f"number-{number}").touch(exist_ok=False)
        except FileExistsError:
            return True
        return False

    def write(self, what: str) -> None:
        with open(self.path / "diary", "a") as file:
            file.write(f"{what} {self.number}\n")

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if action == RAISE:
            raise ValueError("as asked")
        if action == EXIT:
            sys.exit("as asked")
        return np.zeros(2, np.float32), 1.0, action == END, False, {}

    def close(self):
        self.write("closed")
        if self.odd.get("close") == self.number:
            sys.exit("also when closed")
