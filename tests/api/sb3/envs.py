"""Envs to hold our SB3 VecEnv against; workers import this, so it imports no torch."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

OBSERVATIONS: dict[str, spaces.Space] = {
    "box": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "wide": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    "scalar": spaces.Box(-1.0, 1.0, (), np.float32),
    "discrete": spaces.Discrete(7),
    "multi": spaces.MultiDiscrete([3, 4]),
    "bits": spaces.MultiBinary(3),
    "image": spaces.Box(0, 255, (36, 40, 3), np.uint8),
}
OBSERVATIONS["dict"] = spaces.Dict(
    {key: OBSERVATIONS[key] for key in ("image", "box", "discrete")}
)
OBSERVATIONS["tuple"] = spaces.Tuple(
    [OBSERVATIONS[key] for key in ("discrete", "wide", "bits")]
)


class Kinds(gymnasium.Env):
    """Observations of one kind, infos of every kind, short episodes of both ends."""

    def __init__(self, kind: str = "box", render_mode: str | None = "rgb_array"):
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": 12}
        self.render_mode = render_mode
        self.observation_space = OBSERVATIONS[kind]
        self.action_space = spaces.Discrete(3)
        self.told: list[int] = []  # this episode's times
        self.lengths: list[int] = []  # of all episodes
        self.current_options: dict | None = None

    def _draw(self, space: spaces.Space) -> Any:
        draw = self.np_random
        if isinstance(space, spaces.Dict):
            return {key: self._draw(part) for key, part in space.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._draw(part) for part in space)
        if isinstance(space, spaces.Discrete):
            return int(draw.integers(space.n))
        if isinstance(space, spaces.Box) and space.dtype.kind == "f":
            return np.asarray(draw.uniform(-1, 1, space.shape), space.dtype)
        top = getattr(space, "nvec", 256 if isinstance(space, spaces.Box) else 2)
        return draw.integers(0, top, space.shape).astype(space.dtype)

    def _info(self) -> dict[str, Any]:
        self.told.append(self.time)
        info = {"time": self.time, "half": self.time / 2, "told": self.told}
        if self.time % 2:
            info["word"] = "x" * self.time
            info["vector"] = np.arange(3) + self.time
        if self.time % 3 == 1:
            info["deep"] = {"down": np.float32(self.total), "yes": True}
        return info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.current_options = options
        self.time = 0
        self.length = int(self.np_random.integers(2, 7))
        self.total = float(self.np_random.random())
        self.told = []
        info = {**self._info(), "told": [], "fresh": True}
        return self._draw(self.observation_space), info

    def step(self, action):
        self.time += 1
        self.total += float(action)
        ended = self.time >= self.length
        late = ended and self.time % 2 == 0
        both = late and self.time % 4 == 0
        terminated = ended and (both or not late)
        obs, info = self._draw(self.observation_space), self._info()
        if ended:
            self.lengths.append(self.time)
            info["lengths"] = self.lengths  # the same list every time
        return obs, self.total / 3, terminated, late, info

    def render(self):
        return np.full((8, 8, 3), self.time, np.uint8)

    def add(self, *terms, times=1):
        return times * sum(terms)

    def pid(self):
        return os.getpid()


class Masked(gymnasium.Env):
    """Some actions are not allowed, others every time; counts who asks."""

    def __init__(self, kind: str = "array", fails_at: int | None = None) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.kind = kind
        self.fails_at = fails_at
        self.asked = 0

    def _observe(self):
        obs = np.zeros(4, np.float32)
        obs[self.place] = 1
        return obs

    def action_masks(self):
        if self.time == self.fails_at:
            raise RuntimeError("no masks now")
        self.asked += 1
        allowed = np.ones(4, np.bool_)
        allowed[self.place] = False
        return allowed if self.kind == "array" else allowed.tolist()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(4))
        self.time = 0
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        self.place = int(self.np_random.integers(4))
        ended = self.time >= 5
        info = {"last": True} if ended else {}
        return self._observe(), float(action == self.place), ended, False, info

    def move(self, place: int) -> None:
        self.place = place


class Mortal(Kinds):
    """Ends its process when it is told to."""

    def step(self, action):
        if action == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class Lister(gymnasium.Env):
    """Takes any action, and tells what it was."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Box(0, 255, (2, 2), np.uint8)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        told = f"{type(action).__name__} {np.asarray(action).tolist()}"
        return np.zeros(1, np.float32), 0.0, False, False, {"told": told}


class Outer(gymnasium.Wrapper):
    """A wrapper to be looked for."""


class Inner(gymnasium.Wrapper):
    """Another one."""


class Apart(gymnasium.Wrapper):
    """One that nobody wears."""


def wrapped_kinds(kind: str = "box") -> gymnasium.Env:
    return Outer(Inner(Kinds(kind)))


def loaded(env: gymnasium.Env, name: str) -> bool:
    """Whether the process of this env has imported a module."""
    return name in sys.modules
