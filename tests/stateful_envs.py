"""Envs whose state is their process's: beside another one they do something else.

    ClassCounter    numbers its instances         in an attribute of its class
    ModuleCounter   counts all steps              in a variable of its module
    HiddenCounter   the same, shown after 100     in a list of its class
    NativeDice      draws                         from the C library's generator
    SeedsNumpy      seeds and draws               from numpy's global generator
    LevelUp         gets harder, for all of them  when an episode of one ends

For tests of whoever puts envs into one process. `Plain` is safe there.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

LENGTH = 7
counted = 0
_libc = ctypes.CDLL(None)
Outcome = tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]


class Plain(gymnasium.Env[NDArray[np.float64], np.int64]):
    """Safe beside others; its episodes have seven steps. The others are like it."""

    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Somewhere between 0 and 1."""
        super().reset(seed=seed)
        self.at, self.steps = float(self.np_random.random()), 0
        return self.seen(), {}

    def step(self, action: np.int64) -> Outcome:
        """Move by the action."""
        self.at += float(action)
        self.steps += 1
        return self.seen(), self.at, self.steps == LENGTH, False, {"at": self.at}

    def seen(self) -> NDArray[np.float64]:
        """Where it is, and what its process has to do with it."""
        return np.array([self.at, self.extra()])

    def extra(self) -> float:
        """Nothing."""
        return 0.0


class ClassCounter(Plain):
    """Tells how many of them were made in this process."""

    made = 0

    def __init__(self) -> None:
        ClassCounter.made += 1
        self.number = ClassCounter.made

    def extra(self) -> float:
        """Its number."""
        return float(self.number)


class ModuleCounter(Plain):
    """Counts the steps of all of them in a variable of its module."""

    def step(self, action: np.int64) -> Outcome:
        """Count."""
        global counted
        counted += 1
        return super().step(action)

    def extra(self) -> float:
        """How many there were."""
        return float(counted)


class HiddenCounter(Plain):
    """The same, and shows it after a hundred steps."""

    total: ClassVar[list[int]] = [0]

    def step(self, action: np.int64) -> Outcome:
        """Count."""
        self.total[0] += 1
        return super().step(action)

    def extra(self) -> float:
        """Whether there were more than a hundred."""
        return float(self.total[0] > 100)


class NativeDice(Plain):
    """Draws from the C library, as a simulator written in C may."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Seed it."""
        if seed is not None:
            _libc.srand(seed % 2**31)
        return super().reset(seed=seed)

    def extra(self) -> float:
        """What was drawn."""
        return float(_libc.rand())


class SeedsNumpy(Plain):
    """Seeds numpy's global generator in a reset, and draws from it."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Seed it."""
        if seed is not None:
            np.random.seed(seed % 2**32)
        return super().reset(seed=seed)

    def extra(self) -> float:
        """What was drawn."""
        return float(np.random.random())


class LevelUp(Plain):
    """The next episode of all of them is harder, once one has ended."""

    level = 0.0

    def step(self, action: np.int64) -> Outcome:
        """The last one counts."""
        outcome = super().step(action)
        if outcome[2]:
            LevelUp.level += 1.0
        return outcome

    def extra(self) -> float:
        """How hard it is."""
        return LevelUp.level


STATEFUL: tuple[type[Plain], ...] = (
    ClassCounter,
    ModuleCounter,
    HiddenCounter,
    NativeDice,
    SeedsNumpy,
    LevelUp,
)
