"""Envs for tests of off-policy learners; workers import this file."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces


class Drift(gymnasium.Env):
    """A noisy point; its episodes end after 3 to 9 steps, some by truncation."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Box(-2.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(3, 10))
        self._truncates = bool(self.np_random.integers(2))
        self._point = self.np_random.normal(size=3)
        return self._point.copy(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self._point[:2] += 0.1 * action + 0.1 * self.np_random.normal(size=2)
        self._left -= 1
        over = self._left == 0
        reward = -float(np.abs(self._point).sum())
        ends = over and not self._truncates, over and self._truncates
        return self._point.copy(), reward, *ends, {}


class Choice(Drift):
    """The same with three discrete actions, which start at 1."""

    action_space = spaces.Discrete(3, start=1)

    def step(self, action):
        assert self.action_space.contains(action), action
        push = np.full(2, action - 2.0, np.float32)
        self._point[:2] += 0.1 * push
        self._left -= 1
        over = self._left == 0
        return self._point.copy(), float(self._point[0]), over, False, {}


class Broken(Drift):
    """Returns a number that is not finite at the last step of every episode."""

    def __init__(self, what: str) -> None:
        self._what = what

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            reward = float("nan") if self._what == "reward" else reward
            obs = obs + (np.inf if self._what == "obs" else 0.0)
        return obs, reward, terminated, truncated, info


class Recall(gymnasium.Env):
    """Shows a bit, then nothing; the second action should repeat it."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._bit, self._step = int(self.np_random.integers(2)), 0
        return np.array([2.0 * self._bit - 1.0], np.float32), {}

    def step(self, action):
        self._step += 1
        reward = float(self._step == 2 and action == self._bit)
        return np.zeros(1, np.float32), reward, self._step == 2, False, {}


class Aim(gymnasium.Env):
    """One step: the action should be half of the observation."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._shown = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self._shown, {}

    def step(self, action):
        miss = float(abs(action[0] - self._shown[0] / 2))
        return self._shown, -miss, True, False, {}
