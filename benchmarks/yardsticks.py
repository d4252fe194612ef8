"""What a vector env is held against: the bare loop, and the limit of the machine.

bare loop   for env in envs: env.step(action)        one core, no API at all
the limit   one env per core, every core at once     all cores, no batches at all
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import gymnasium
from gymnasium.vector.utils import batch_space, iterate

from corral.tools.bench.measure import draw_actions


class BareLoop:
    """A `for` loop over envs that resets those whose episode ended."""

    def __init__(self, factory: Callable[[], gymnasium.Env], slots: int) -> None:
        self.slots = slots
        self._envs = [factory() for _ in range(slots)]
        space = self._envs[0].action_space
        batched = batch_space(space, slots)
        batches = draw_actions(space, slots, seed=0)
        self._actions = [list(iterate(batched, batch)) for batch in batches]
        for slot, env in enumerate(self._envs):
            env.reset(seed=slot)

    def run(self, batches: int) -> float:
        envs = self._envs
        actions = list(islice(cycle(self._actions), batches))
        began = time.perf_counter()
        for batch in actions:
            for env, action in zip(envs, batch, strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()
        return time.perf_counter() - began

    def close(self) -> None:
        for env in self._envs:
            env.close()


class Limit:
    """Independent single-env loops, one process per core, started by one barrier.

    `run` gives every process the same number of steps and returns the seconds that
    fit the sum of their rates: what the cores do when nobody waits for anybody.
    """

    def __init__(
        self,
        factory: Callable[[], Any],
        cores: int,
        loop: Callable[[Any, int], Any] = BareLoop,
    ) -> None:
        self.slots = cores
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(cores)
        self._pipes = []
        self._processes = []
        for _ in range(cores):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=loop_alone, args=(factory, loop, barrier, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def run(self, batches: int) -> float:
        for pipe in self._pipes:
            pipe.send(batches)
        rate = sum(batches / pipe.recv() for pipe in self._pipes)
        return self.slots * batches / rate

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()


def loop_alone(factory, kind, barrier, pipe) -> None:
    """The body of one of the limit's processes."""
    loop = kind(factory, 1)
    pipe.send("ready")
    while (batches := pipe.recv()) is not None:
        barrier.wait()
        pipe.send(loop.run(batches))
    loop.close()
