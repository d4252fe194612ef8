"""Tasks that are learnt in a second, one per kind of space."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 8


class Match(gymnasium.Env):
    """Say what is shown: a bit, seen in one form and answered in another."""

    def __init__(self, seen: str, answered: str) -> None:
        self.observation_space = SEEN[seen][0]
        self.action_space, self._score = ANSWERED[answered]
        self._show = SEEN[seen][1]

    def _shown(self):
        self._bit = int(self.np_random.integers(2))
        return self._show(self._bit)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step = 0
        return self._shown(), {}

    def step(self, action):
        assert self.action_space.contains(action), (action, self.action_space)
        reward = self._score(action, self._bit)
        self._step += 1
        return self._shown(), reward, self._step == LENGTH, False, {}


class Recall(gymnasium.Env):
    """Say at the end what was shown at the start."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._bit = int(self.np_random.integers(2))
        self._step = 0
        return np.array([2.0 * self._bit - 1.0, 0.0], np.float32), {}

    def step(self, action):
        self._step += 1
        last = self._step == 4
        reward = float(action == self._bit) if last else 0.0
        obs = np.array([0.0, float(self._step == 3)], np.float32)
        return obs, reward, last, False, {}


def picture(bit: int, shape: tuple[int, ...]):
    image = np.zeros(shape, np.uint8)
    image[: shape[0] // 2] = 255 * bit
    image[shape[0] // 2 :] = 255 * (1 - bit)
    return image


SEEN = {
    "box": (
        spaces.Box(-1.0, 1.0, (2,), np.float32),
        lambda bit: np.array([bit, 1 - bit], np.float32),
    ),
    "double": (
        spaces.Box(-1.0, 1.0, (1, 2), np.float64),
        lambda bit: np.array([[bit, 1 - bit]], np.float64),
    ),
    "discrete": (spaces.Discrete(2, start=5), lambda bit: np.int64(5 + bit)),
    "multidiscrete": (
        spaces.MultiDiscrete([3, 2]),
        lambda bit: np.array([2, bit], np.int64),
    ),
    "multibinary": (
        spaces.MultiBinary(2),
        lambda bit: np.array([bit, 1 - bit], np.int8),
    ),
    "image": (
        spaces.Box(0, 255, (8, 8, 1), np.uint8),
        lambda bit: picture(bit, (8, 8, 1)),
    ),
    "dict": (
        spaces.Dict(
            {"none": spaces.Discrete(2), "of": spaces.Tuple([spaces.Discrete(2)])}
        ),
        lambda bit: {"none": np.int64(0), "of": (np.int64(bit),)},
    ),
}
ANSWERED = {
    "discrete": (
        spaces.Discrete(2, start=3),
        lambda action, bit: float(action == 3 + bit),
    ),
    "multidiscrete": (
        spaces.MultiDiscrete([2, 3]),
        lambda action, bit: float(action[0] == bit) / 2 + float(action[1] == 2) / 2,
    ),
    "multibinary": (
        spaces.MultiBinary(3),
        lambda action, bit: float(np.mean(action == bit)),
    ),
    "box": (
        spaces.Box(-1.0, 1.0, (2,), np.float32),
        lambda action, bit: 1.0 - float(np.abs(action - (2 * bit - 1)).mean()) / 2,
    ),
}
