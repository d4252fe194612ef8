"""An env that tells of what it holds, and goes on to change it."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


@dataclass
class Box:
    """An object of the user's."""

    held: Any


class Anything(spaces.Space[Any]):
    """A space that nothing is known of: its values go by mailbox."""

    def contains(self, x: Any) -> bool:
        return True

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Anything)

    def __hash__(self) -> int:
        return 7


def change(value: Any, depth: int = 0) -> None:
    """Change everything that can be, in its place."""
    kind = type(value)
    if kind is np.ndarray and value.dtype != object:
        value += 1
    elif isinstance(value, (list, collections.deque)):
        for part in list(value):
            change(part)
        value.append(len(value))
    elif kind is np.ndarray or kind is tuple:
        for part in value:
            change(part)
    elif isinstance(value, dict):
        for part in list(value.values()):
            change(part)
        value[f"more {len(value)}"] = 1
    elif kind is set:
        value.add(100 + len(value))
    elif kind is bytearray:
        value.append(len(value))
    elif kind is Box:
        change(value.held)
        value.held = [value.held]


def empty(value: Any) -> None:
    """Forget everything that can be, in its place."""
    if hasattr(value, "clear"):
        value.clear()
    elif type(value) is Box:
        value.held = None
    elif type(value) is np.ndarray:
        value[...] = 0


class Hoarder(gymnasium.Env[Any, Any]):
    """Its observation and its info are what it holds; a reset empties that first."""

    observation_space = Anything()
    action_space = spaces.Discrete(2)
    length = 3

    def __init__(self) -> None:
        self.tree: Any = []
        self.given: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        empty(self.tree)
        if options is not None:
            self.given = options["tree"]
        self.tree = self.given
        self.time = 0
        return self._told()

    def step(self, action: Any) -> Any:
        self.time += 1
        change(self.tree)
        obs, info = self._told()
        return obs, 1.0, self.time == self.length, False, info

    def _told(self) -> Any:
        info = {"tree": self.tree, "again": [self.tree], "time": self.time}
        return self.tree, {**info, "deep": {"tree": self.tree, "word": "x"}}


class Teller(Hoarder):
    """The same with an observation in the block."""

    observation_space = spaces.Discrete(9)

    def _told(self) -> Any:
        return self.time, super()._told()[1]


class Trails(VectorEnv[Any, Any, Any]):
    """Each slot tells of a list that grows, and that its next reset empties."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    single_observation_space = spaces.Discrete(9)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.trails: list[list[int]] = [[] for _ in range(num_envs)]

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        for slot in np.flatnonzero(options["reset_mask"]):
            self.trails[slot].clear()
        return self._lengths(), self._infos()

    def step(self, actions: Any, step_mask: Any = None) -> Any:
        for slot, trail in enumerate(self.trails):
            if step_mask is None or step_mask[slot]:
                trail.append(len(trail) + 1)
        over = self._lengths() >= np.arange(self.num_envs) + 2
        no = np.zeros(self.num_envs, np.bool_)
        return self._lengths(), no.astype(float), over, no, self._infos()

    def _lengths(self) -> Any:
        return np.array([len(trail) for trail in self.trails])

    def _infos(self) -> Any:
        held = np.empty(self.num_envs, object)
        held[:] = self.trails
        return {"trail": held, "_trail": np.ones(self.num_envs, np.bool_)}
