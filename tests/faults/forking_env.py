"""Environments that fork, and whose children come back where they must not."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

LENGTH = 5


def come_back() -> bool:
    """In the child True: the caller goes on, as a copy of the worker."""
    return os.fork() == 0


def raises() -> None:
    if os.fork() == 0:
        raise RuntimeError("from the child")


def exits() -> None:
    if os.fork() == 0:
        sys.exit(7)


def fails_to_exec() -> None:
    if os.fork() == 0:
        os.execv("/nowhere/at/all", ["nothing"])


def forks_twice() -> None:
    if os.fork() == 0:
        os.fork()


def forks_in_c() -> None:
    ctypes.PyDLL(None).fork()


WAYS: dict[str, Any] = {
    "returns": come_back,
    "raises": raises,
    "exits": exits,
    "exec fails": fails_to_exec,
    "double fork": forks_twice,
    "fork of C": forks_in_c,
}


class Forking(gym.Env[Any, Any]):
    """Counts its steps; forks where it is told to; each close leaves a file."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gym.spaces.Discrete(10)

    def __init__(
        self, slot: int, way: str = "", where: str = "", folder: str = ""
    ) -> None:
        self._slot, self._way, self._where = slot, way, where
        self._folder = folder
        self.time, self.episode, self.total = 0, 0, 0
        self._fork("construct")

    def _fork(self, where: str) -> None:
        if where == self._where:
            WAYS[self._way]()

    def _obs(self) -> Any:
        return np.array([self._slot, self.episode, self.total], np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time, self.total = 0, 0
        self.episode += 1
        self._fork("reset")
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.total += int(action)
        self._fork("step")
        return self._obs(), float(action), self.time == LENGTH, False, {}

    def ask(self) -> int:
        self._fork("call")
        return self._slot

    def close(self) -> None:
        if self._folder:
            Path(self._folder, f"closed-{self._slot}-{os.getpid()}").touch()
        self._fork("close")


def together(way: str, where: str, num_envs: int) -> Any:
    """A batch of such envs, the first of which forks."""
    envs = [lambda: Forking(0, way, where)]
    envs += [lambda: Forking(0)] * (num_envs - 1)
    return gym.vector.SyncVectorEnv(envs)


class Patient(Forking):
    """Is done only when its parent has gone on too early, or a while has passed."""

    def step(self, action: Any) -> Any:
        deadline = time.monotonic() + 0.05
        while not Path(self._folder, str(self.total)).exists():
            if time.monotonic() > deadline:
                break
        return super().step(action)


class Ringing(Forking):
    """Rings the parent's bell for results that are not there, by the worker's own."""

    def step(self, action: Any) -> Any:
        result = super().step(action)
        import gc

        from corral.engine.worker.letters import WorkerEndpoint

        for desk in gc.get_objects():
            if isinstance(desk, WorkerEndpoint):
                desk.parent_bell.ring(3)
                desk.parent_bell.flush()
        return result
