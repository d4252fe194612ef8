"""An env with methods that end its process, or tell the caller's."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

KILL = 1


class Asked(gymnasium.Env[Any, Any]):
    """Counts its steps; ends its process when it is told to."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    tag = 7

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        if action == KILL:
            self.die()
        self._steps += 1
        return np.array([float(self._steps)]), 1.0, False, False, {}

    def pid(self) -> int:
        return os.getpid()

    def echo(self, value: Any) -> Any:
        """What it was given."""
        return value

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_when(self, told: Path) -> None:
        """End the process once there is this file."""
        while not told.exists():
            time.sleep(0.001)
        self.die()

    def alarm(self, pid: int, told: Path) -> str:
        """Send SIGALRM when there is told/asked; wait for told/heard, at most 5 s."""
        limit = time.monotonic() + 5
        while not (told / "asked").exists():
            time.sleep(0.001)
        os.kill(pid, signal.SIGALRM)
        while not (told / "heard").exists() and time.monotonic() < limit:
            time.sleep(0.001)
        return "heard"


class Growing(Asked):
    """Grows by 20 MiB a step; an episode has three."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def step(self, action: Any) -> Any:
        obs, reward, _, truncated, info = super().step(action)
        self._held.append(bytes([1]) * (20 << 20))
        return obs, reward, self._steps == 3, truncated, info
