"""Envs to compare APIs with; not in the tests, so that workers import no pytest."""

from __future__ import annotations

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Chatty(gymnasium.Env):
    """Nested observations, one buffer for all of them, and infos of every kind."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 3), np.uint8),
            "pair": spaces.Tuple([spaces.Discrete(5, start=-2), spaces.Box(-1, 1)]),
            "nothing": spaces.Box(0, 1, (0, 4)),
        }
    )
    action_space = spaces.Dict(
        {"move": spaces.Discrete(3), "push": spaces.Box(-1.0, 1.0, (2,))}
    )

    def _observe(self):
        self.image[:] = self.time
        position = np.array([self.total % 1], np.float32)
        nothing = np.zeros((0, 4), np.float32)
        return {
            "image": self.image,
            "pair": (self.time % 5 - 2, position),
            "nothing": nothing,
        }

    def _info(self):
        info = {"time": self.time, "half": self.time / 2, "odd": bool(self.time % 2)}
        if self.time % 3 == 0:
            info["word"] = "x" * self.time
            info["vector"] = np.arange(3) + self.time
        if self.time % 4 == 1:
            info["deep"] = {"down": {"here": np.float32(self.total)}, "list": [1, 2]}
        return info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.image = np.zeros((2, 3), np.uint8)
        self.time = 0
        self.length = int(self.np_random.integers(2, 9))
        self.total = float(self.np_random.random())
        return self._observe(), {**self._info(), "options": str(options)}

    def step(self, action):
        self.time += 1
        self.total += float(action["move"]) + float(action["push"].sum())
        ended = self.time >= self.length
        reward = np.array([self.total])  # of shape (1,), as some envs have it
        late = ended and self.time % 2 == 0
        return self._observe(), float(reward[0]), ended and not late, late, self._info()


class Wordy(gymnasium.Env):
    """Observations of no fixed size."""

    observation_space = spaces.Dict(
        {
            "text": spaces.Text(9),
            "many": spaces.Sequence(spaces.Box(0, 1, (2,))),
            "one": spaces.OneOf([spaces.Discrete(3), spaces.Box(0, 1)]),
            "plain": spaces.Discrete(9),
        }
    )
    action_space = spaces.Discrete(2)

    def _observe(self):
        return {
            "text": "a" * (1 + self.time),
            "many": tuple(np.full(2, i, np.float32) for i in range(self.time)),
            "one": (0, np.int64(self.time % 3)),
            "plain": self.time,
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        self.length = int(self.np_random.integers(2, 8))
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        return self._observe(), 1.0, self.time >= self.length, False, {}


class Trouble(Exception):
    """Somebody's own exception."""


class Moody(gymnasium.Env):
    """Does what its action says: 0 nothing, 1 raise, 2 take its time, 3 end."""

    observation_space = spaces.Box(-1, 1, (2,), np.float64)
    action_space = spaces.Discrete(4)
    mood = "calm"
    render_mode = "ansi"

    def __init__(self, log: str | None = None, metadata: dict | None = None) -> None:
        self.metadata = {"render_modes": ["ansi"], **(metadata or {})}
        if log is not None:
            with open(log, "a") as file:
                file.write("built\n")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if options and options.get("fail"):
            raise Trouble("no reset today")
        self.time = 0
        return np.zeros(2), {}

    def step(self, action):
        self.time += 1
        if action == 1:
            raise Trouble(f"at {self.time}")
        if action == 2:
            time.sleep(0.2)
        return np.full(2, self.time / 100), 1.0, bool(action == 3), False, {}

    def render(self):
        return f"a {self.mood} env"

    def pid(self):
        return os.getpid()

    def add(self, *terms, times=1):
        return times * sum(terms)


class Slow(Moody):
    """Long enough a step to be worth a worker."""

    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


class Steady(Slow):
    """The same, and it fails with no action."""

    def step(self, action):
        return super().step(0)


class Quick(Moody):
    """Nothing a worker could help with."""

    def step(self, action):
        return super().step(0)


class Tall(gymnasium.Env):
    """An env whose observation space has a height of its own."""

    action_space = spaces.Discrete(2)

    def __init__(self, height: float, length: int = 2) -> None:
        self.observation_space = spaces.Box(0, height, (length,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.high, {}

    def step(self, action):
        return self.observation_space.high, 0.0, False, False, {}
