"""Exceptions that misbehave on their way home, and envs that raise and answer them."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import gymnasium as gym
import numpy as np


class NoText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class ExitsWhenTold(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class ExitsWhenPickled(Exception):
    def __reduce__(self):
        raise SystemExit(3)


class OnlyThere(Exception):
    """Can be unpickled in the process that made it, and nowhere else."""

    def __reduce__(self):
        return load_at, (os.getpid(),)


def load_at(pid: int) -> OnlyThere:
    if os.getpid() != pid:
        raise RuntimeError("not here")
    return OnlyThere()


class TakesNoAttributes(Exception):
    def __setattr__(self, name, value):
        raise AttributeError(name)


class Env(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-9, 9, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, where: str = "", kind: type[BaseException] = ValueError) -> None:
        self.where, self.kind, self.time = where, kind, 0
        self.fail("construct")

    def fail(self, where: str) -> None:
        if where == self.where:
            raise self.kind

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {"options": options}

    def step(self, action):
        self.fail("step")
        info = {"odd": OnlyThere()} if self.where == "info" else {}
        return np.zeros(2, np.float32), 1.0, False, False, info

    def echo(self, value):
        self.fail("call")
        return OnlyThere() if self.where == "answer" else value

    def nap(self):
        time.sleep(0.5)


class Pickles(gym.Env[Any, Any]):
    """Its info cannot be pickled at one moment; its third step is the last."""

    observation_space = gym.spaces.Box(-9, 9, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, when: str, times: str) -> None:
        self.when, self.times = when, times

    def info(self, moment: str) -> dict[str, Any]:
        if moment != self.when or os.path.exists(self.times):
            return {"fine": moment}
        with open(self.times, "x"):
            return {"odd": threading.Lock()}

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(1), self.info("reset")

    def step(self, action):
        self.count += 1
        moment = f"step {self.count}"
        return np.full(1, self.count), 1.0, self.count == 3, False, self.info(moment)


class Hoarder(Env):
    """Has one info dict, with one array, and one graph, and uses them for ever."""

    observation_space = gym.spaces.Graph(gym.spaces.Box(-9, 9, (1,)), None)

    def __init__(self) -> None:
        super().__init__()
        self.info: dict[str, Any] = {}
        self.big = np.zeros(4000)
        self.nodes = np.zeros((3, 1), np.float32)

    def look(self):
        self.big[:] = self.nodes[:] = self.time
        return gym.spaces.GraphInstance(self.nodes, None, None)

    def reset(self, **_):
        self.time = 0
        self.info.clear()
        return self.look(), self.info

    def step(self, action):
        self.time += 1
        self.info.update(time=self.time, big=self.big, below={"big": self.big})
        return self.look(), 1.0, self.time == 3, False, self.info


class Wordy(Env):
    """Raises with a text of 50 MB, which begins and ends with what matters."""

    def step(self, action: Any) -> Any:
        raise ValueError("first words " + "x" * 50_000_000 + " last words")
