"""The environments the benchmarks step, as factories a worker can import.

Computing is a fixed amount of arithmetic, never a loop that watches the clock: a
clock loop takes its time whether or not it got a core, and hides every waiting.
"""

from __future__ import annotations

import functools
import statistics
import time

import gymnasium
import numpy as np
from gymnasium import spaces


def compute(iterations: int) -> int:
    """A fixed amount of work that holds the GIL."""
    value = 1
    for _ in range(iterations):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    return value


@functools.cache
def iterations_for(microseconds: float) -> int:
    """How many iterations take so long on this machine; measured once, then fixed."""
    trial = 20_000
    times = []
    for _ in range(15):
        began = time.perf_counter()
        compute(trial)
        times.append(time.perf_counter() - began)
    return max(1, round(trial * microseconds * 1e-6 / statistics.median(times)))


class FixedWork(gymnasium.Env):
    """Every step is the same amount of computing; episodes last 1,000 steps."""

    def __init__(self, iterations: int) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._iterations = iterations
        self._observation = np.zeros(4, np.float32)
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._observation, {}

    def step(self, action):
        compute(self._iterations)
        self._steps += 1
        return self._observation, 1.0, False, self._steps >= 1_000, {}


class Frames(FixedWork):
    """A stack of four 84×84 frames, and a fixed amount of computing per step."""

    def __init__(self, iterations: int) -> None:
        super().__init__(iterations)
        self.observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
        frames = np.random.default_rng(0).integers(0, 256, (8, 4, 84, 84), np.uint8)
        self._frames = frames
        self._observation = frames[0]

    def step(self, action):
        self._observation = self._frames[self._steps % len(self._frames)]
        return super().step(action)


class Waiting(FixedWork):
    """Every step waits, as for a network or a simulator elsewhere."""

    def __init__(self, seconds: float) -> None:
        super().__init__(iterations=0)
        self._seconds = seconds

    def step(self, action):
        time.sleep(self._seconds)
        return super().step(action)


def make_cartpole() -> gymnasium.Env:
    return gymnasium.make("CartPole-v1")


def make_ant() -> gymnasium.Env:
    return gymnasium.make("Ant-v5")


def make_fixed_work(iterations: int) -> gymnasium.Env:
    return FixedWork(iterations)


def make_frames(iterations: int) -> gymnasium.Env:
    return Frames(iterations)


def make_waiting(seconds: float) -> gymnasium.Env:
    return Waiting(seconds)
