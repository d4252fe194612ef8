"""One env that a probe builds, resets, steps, times and closes."""

from __future__ import annotations

import builtins
import copy
import importlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from corral.engine.faults.process_usage import own_time
from corral.engine.worker.commands import Job
from corral.engine.worker.context import WorkerContext
from corral.engine.worker.episode_plan import sampled_task
from corral.engine.worker.forked_copies import Guard, no_guard
from corral.engine.worker.shard_envs import ShardEnvs
from corral.engine.worker.shared_state import advanced_generators, generator_states

THREADS_KEY = "corral.threads"
"""The key of an env's metadata that declares that its steps release the GIL."""
SAMPLED_ACTIONS = 64


@dataclass(slots=True)
class StepTimes:
    """What the steps of an env took."""

    steps: int = 0
    stepping: float = 0.0
    """Seconds, without those in which other programs had the cores."""
    computing: float = 0.0
    """CPU time, of all threads: libraries have their own."""
    pace: float = 0.0
    """Steps per second of a run, with what comes between them."""


class ProbedEnv:
    """One env.

    Args:
        job: of its worker.
        slot: whose seeds and tasks it gets.
        factory: makes it.
        guard: ends a forked copy of this worker; see `forked_copies`.
    """

    actions: Iterator[Any]

    def __init__(
        self, job: Job, slot: int, factory: Callable[[], Any], guard: Guard = no_guard
    ) -> None:
        self.slot = slot
        self.times = StepTimes()
        self._options = replace(job.options, checks_sharing=False)
        slots = range(slot, slot + 1)
        self.envs = ShardEnvs(slots, self._options, guard, owns_process=False)
        self._guard = guard
        self._factory = factory
        self._episode = 0

    def build(self) -> ProbedEnv:
        """Build it."""
        (spec,) = self.envs.build([self._make])
        self._adapter = self.envs.adapters[0]
        # A copy: the env's own space, which others may share, stays as it is. Drawn
        # beforehand: with two threads each draw would be in the other's way.
        space = copy.deepcopy(spec.action_space)
        space.seed(0)
        self.actions = cycle([space.sample() for _ in range(SAMPLED_ACTIONS)])
        self.refuses_threads = spec.metadata.get(THREADS_KEY) is False
        self.declares_threads = bool(spec.metadata.get(THREADS_KEY))
        """Whether it declares that its steps release the GIL."""
        return self

    def _make(self) -> Any:
        self.made = self._factory()
        return self.made

    @property
    def env(self) -> Any:
        """The env itself."""
        return self._adapter.env

    def reset(self, seed: int | None, timed: bool = False) -> Any:
        """Begin an episode; what the env draws is its own, where that was asked for."""
        task = sampled_task(self._options, self.slot, self._episode)
        self._episode += 1
        return self._call(self._adapter.reset, seed, None, task, timed=timed)

    def step(self, action: Any) -> Any:
        """One step, likewise."""
        permitted = getattr(self._adapter, "permitted", None)
        if permitted is not None:
            action = permitted(action)
        self.times.steps += 1
        return self._call(self._adapter.step, action, timed=True)

    def _call(self, method: Callable[..., Any], *arguments: Any, timed: bool) -> Any:
        worked, began = time.process_time(), time.perf_counter()
        try:
            with self.envs.randomness_of(self.slot):
                result = method(*arguments)
        except BaseException as error:
            self._guard(error)
            raise
        if timed:
            self.times.stepping += time.perf_counter() - began
            self.times.computing += time.process_time() - worked
        self._guard()
        return result

    def cut(self, _: None = None) -> bool:
        """Have the env's TimeLimit end the episode with the next step."""
        layer = self.env
        while layer is not None:
            inside = getattr(layer, "__dict__", {})
            passed = inside.get("_elapsed_steps")
            if isinstance(passed, int) and "_max_episode_steps" in inside:
                layer._max_episode_steps = passed + 1
                return True
            layer = inside.get("env")
        return False

    def run(self, until: float, most_steps: int | None = None) -> StepTimes:
        """Step until then, once at least; from a reset on, if it had none."""
        if not self._episode:
            self.reset(0)
        self.times, own = StepTimes(), own_time()
        with self.undisturbed():
            for action in self.actions:
                _, _, terminated, truncated, _ = self.step(action)
                if terminated or truncated:
                    self.reset(None, timed=True)
                if time.perf_counter() >= until or self.times.steps == most_steps:
                    break
        # Not of the time in steps: a thread can wait for the GIL between them.
        self.times.pace = self.times.steps / max(1e-9, own_time() - own)
        return self.times

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Leave out of `times` what other programs take from this thread meanwhile."""
        before, began, own = self.times.stepping, time.perf_counter(), own_time()
        yield
        share = (own_time() - own) / (time.perf_counter() - began)
        self.times.stepping = before + (self.times.stepping - before) * max(0.01, share)

    def close(self) -> None:
        """Close it; errors are ignored, since another env may have broken it."""
        while self.envs.adapters:
            with suppress(Exception):
                self._call(self.envs.adapters.pop().close, timed=False)


class RandomStreams:
    """Every stream of random numbers that belongs to a worker, as it is now."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._python, self._numpy = random.getstate(), np.random.get_state()
        self._own = context.rng.bit_generator.state

    def restore(self) -> None:
        """Undo all draws since this object was made."""
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        self._context.rng.bit_generator.state = self._own

    def states(self) -> dict[str, Any]:
        """Where they are by now, by name."""
        own = repr(self._context.rng.bit_generator.state)
        return {**generator_states(), "this_worker().rng": own}

    def drawn_since(self, before: dict[str, Any]) -> list[str]:
        """The streams that have moved."""
        return advanced_generators(before, self.states())


@contextmanager
def timed_imports() -> Iterator[list[float]]:
    """Yields the seconds of all imports inside, which the next env is spared."""
    seconds: list[float] = []
    is_importing = False

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal is_importing
            if is_importing:
                return function(*arguments, **named)
            is_importing = True  # before the clock is read: that may import too
            began = own_time()
            try:
                return function(*arguments, **named)
            finally:
                seconds.append(own_time() - began)
                is_importing = False

        return call

    before = builtins.__import__, importlib.import_module
    builtins.__import__ = timed(builtins.__import__)
    importlib.import_module = timed(importlib.import_module)
    try:
        yield seconds
    finally:
        builtins.__import__, importlib.import_module = before
