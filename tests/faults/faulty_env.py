"""An env that does one deed where it is told to, and the deeds."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

FINE, FAIL = 0, 1


class Faulty(gym.Env[Any, Any]):
    """Slot 1's env says its last words, and then does what it is told, once."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, at: str = "", deed: Callable[[], Any] = lambda: None) -> None:
        self.at, self.deed = at, deed
        self.reach("construct")

    def reach(self, at: str) -> Any:
        if at == self.at:
            print(f"last words in {at}", flush=True)
            return self.deed()
        return None

    def reset(self, *, seed=None, options=None):
        if seed is not None:  # the first episode of this env is a fine one
            self.reach("reset" if (options or {}).get("fail") else "")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        made = self.reach("step") if action == FAIL else None
        obs = np.zeros(2, np.float32) if made is None else made
        info = {"made": self.reach("info")} if action == FAIL else {}
        return obs, 1.0, False, False, info

    def render(self):
        return self.reach("render")

    def method(self):
        return self.reach("call")

    def close(self):
        self.reach("close")


def boom() -> None:
    raise ZeroDivisionError("boom")


def leave() -> None:
    sys.exit("I am off")


def vanish() -> None:
    os._exit(3)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crash() -> None:
    ctypes.string_at(0)


def hang() -> None:
    while True:
        time.sleep(1)


def wrong_shape() -> Any:
    return np.zeros(3, np.float32)


def vanish_once(flag: Path) -> None:
    flag.touch()
    os._exit(3)
