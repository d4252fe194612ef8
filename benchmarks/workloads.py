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


def make_spread():
    """MPE's simple_spread: three agents, a quarter of a millisecond per step."""
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env()


def make_rps():
    """Rock, paper, scissors: two agents, and two conversions around little work."""
    from pettingzoo.classic.rps.rps import parallel_env

    return parallel_env()


class Signs:
    """Rock, paper, scissors once more, written for agents that act at once."""

    metadata = {"name": "signs"}  # noqa: RUF012
    possible_agents = ["player_0", "player_1"]  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self._seen = spaces.Box(0, 3, (2,), np.int8)
        self._signs = spaces.Discrete(3)

    @property
    def unwrapped(self):
        return self

    def observation_space(self, agent):
        return self._seen

    def action_space(self, agent):
        return self._signs

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        self._round = 0
        nothing = np.full(2, 3, np.int8)
        return dict.fromkeys(self.agents, nothing), {agent: {} for agent in self.agents}

    def step(self, actions):
        first, second = (int(actions[agent]) for agent in self.possible_agents)
        won = (0.0, 1.0, -1.0)[(first - second) % 3]
        self._round += 1
        seen = dict.fromkeys(self.agents, np.array([first, second], np.int8))
        rewards = {"player_0": won, "player_1": -won}
        over = dict.fromkeys(self.agents, self._round == 100)
        going_on = dict.fromkeys(self.agents, False)
        infos = {agent: {} for agent in self.agents}
        if self._round == 100:
            self.agents = []
        return seen, rewards, going_on, over, infos

    def close(self) -> None:
        pass
