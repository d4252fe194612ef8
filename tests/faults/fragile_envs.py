"""Envs that break as they are told, and one that grows."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FINE, RAISE, EXIT, KILL, HANG, LEAVE, SHAPE = range(7)
LENGTH = 6


class Fragile(gymnasium.Env[Any, Any]):
    """Does what its action says; observes (seed's draw, steps taken, pid)."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(7)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if (options or {}).get("break"):
            raise RuntimeError("no reset today")
        self._steps = 0
        self._draw = self.np_random.random()
        return self._observe(), {"options": str(options)}

    def _observe(self) -> Any:
        return np.array([self._draw, self._steps, os.getpid()], np.float64)

    def step(self, action: Any) -> Any:
        if action == RAISE:
            raise ValueError("out of luck")
        if action == EXIT:
            os._exit(3)
        if action == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if action == HANG:
            time.sleep(600)
        if action == LEAVE:
            sys.exit(2)
        self._steps += 1
        if action == SHAPE:
            return np.zeros(5), 1.0, False, False, {}
        return self._observe(), 1.0, self._steps == LENGTH, False, {"n": self._steps}


class Leaky(gymnasium.Env[Any, Any]):
    """Grows by 20 MiB an episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(2)
    held: list[Any] = []  # noqa: RUF012 - a leak is what is wanted

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        Leaky.held.append(np.ones(20 * 2**17))
        self._steps, self._draw = 0, self.np_random.random()
        return np.array([self._draw, 0, os.getpid()]), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        obs = np.array([self._draw, self._steps, os.getpid()])
        return obs, float(self._steps), self._steps == 3, False, {"n": self._steps}


class WordyLeaky(gymnasium.Env[Any, Any]):
    """Grows as it does, and says nothing in numbers."""

    observation_space = spaces.Text(40)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        Leaky.held.append(np.ones(20 * 2**17))
        self._steps, self._name = 0, f"episode {self.np_random.random():.9f}"
        return self._name, {"name": self._name}

    def step(self, action: Any) -> Any:
        self._steps += 1
        said = f"{self._name}, step {self._steps}"
        return said, 0.0, self._steps == 3, False, {"said": said, "n": self._steps}
