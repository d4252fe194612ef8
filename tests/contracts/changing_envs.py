"""Environments whose `step`, `reset` and class change while they run."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space


class Counter(gymnasium.Env[Any, Any]):
    """Says how often it was stepped, and by which method."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(9)
    length = 12

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self.seen(0.0), {}

    def step(self, action: Any) -> Any:
        return self.outcome(action, 1.0)

    def outcome(self, action: Any, by: float) -> Any:
        self.time += 1
        over = self.time % self.length == 0
        return self.seen(by), by + 10.0 * float(action), over, False, {}

    def seen(self, by: float) -> Any:
        return np.array([self.time, by], np.float32)


class Phases(Counter):
    """A state machine: its `step` is another one in each phase, and so is its class."""

    def step(self, action: Any) -> Any:
        if self.time == 2:
            self.step = self.second  # type: ignore[method-assign]
        return self.outcome(action, 1.0)

    def second(self, action: Any) -> Any:
        if self.time == 4:
            del self.step
            self.__class__ = Later  # type: ignore[assignment]
        return self.outcome(action, 2.0)

    def other_reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        del self.reset
        obs, info = super().reset(seed=seed)
        self.time = -4
        return obs, info


class Later(Phases):
    """What Phases becomes, and what it does so until its episode is over."""

    def step(self, action: Any) -> Any:
        if self.time == self.length - 1:
            self.__class__ = Phases  # type: ignore[assignment]
            self.reset = self.other_reset  # type: ignore[method-assign]
        return self.outcome(action, 3.0)


class Brief(Counter):
    """After its first step its reset takes no options any more."""

    length = 3

    def step(self, action: Any) -> Any:
        self.reset = self.brief_reset  # type: ignore[method-assign]
        return super().step(action)

    def brief_reset(self, seed: int | None = None) -> Any:
        obs, info = super().reset(seed=seed)
        return obs + 100.0, info


class Plus(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds to the reward."""

    def __init__(self, env: Any, more: float = 1000.0) -> None:
        super().__init__(env)
        self.more = more

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(reward) + self.more, terminated, truncated, info


def fivefold(action: Any) -> Any:
    """A step that knows of no env."""
    return np.array([-1, 5], np.float32), 5.0 * float(action), False, False, {}


def take_fivefold(env: Any) -> None:
    """Put another step on the instance."""
    env.step = fivefold


def take_another_inside(env: Any) -> None:
    """Exchange the env inside a wrapper."""
    env.env = Plus(Counter(), 70.0)
    env.env.reset(seed=0)


def wrapped_counter() -> Any:
    return Plus(Counter())


class Row(VectorEnv[Any, Any, Any]):
    """A whole shard of counters that exchanges its own step."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = Counter.observation_space
        self.single_action_space = Counter.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.time = np.zeros(num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.time[options["reset_mask"]] = 0
        return self._seen(0.0), {}

    def step(self, actions: Any) -> Any:
        if self.time[0] == 2:
            self.step = self._second  # type: ignore[method-assign]
        return self._outcome(actions, 1.0)

    def _second(self, actions: Any) -> Any:
        return self._outcome(actions, 2.0)

    def _outcome(self, actions: Any, by: float) -> Any:
        self.time += 1
        no = np.zeros(self.num_envs, np.bool_)
        return self._seen(by), by + 10.0 * actions, no, no, {}

    def _seen(self, by: float) -> Any:
        return np.stack([self.time, np.full(self.num_envs, by)], 1).astype(np.float32)
