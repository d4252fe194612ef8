"""One env that a probe builds, resets, steps, times and closes."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np

from corral.core import NO_TASK
from corral.engine.faults.run_delay import own_time
from corral.engine.worker.commands import Job
from corral.engine.worker.context import WorkerContext
from corral.engine.worker.episode_plan import sampled_task
from corral.engine.worker.forked_copies import Guard, no_guard
from corral.engine.worker.shard import Shard
from corral.engine.worker.shared_state import advanced_generators, generator_states

THREADS_KEY = "corral.threads"
"""The key of an env's metadata that declares that its steps release the GIL."""
SAMPLED_ACTIONS = 64


@dataclass(frozen=True, slots=True)
class TimedTurn:
    """What one env did in its turn; seconds in which others had the cores left out."""

    steps: int
    elapsed: float
    stepping: float
    computing: float
    """CPU time of the steps, of all threads: libraries have their own."""

    @property
    def step_time(self) -> float:
        """Seconds per step."""
        return self.stepping / self.steps

    @property
    def pace(self) -> float:
        """Steps per second."""
        # Not of the time in steps: a thread can wait for the GIL between them.
        return self.steps / self.elapsed


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
        options = replace(job.options, checks_sharing=False)
        self.slot = slot
        self.shard = Shard(job.worker, range(slot, slot + 1), options, guard=guard)
        self._guard = guard
        self.calls = 0
        """Resets and steps so far."""
        self._options = options
        self._factory = factory
        self._episode = 0

    def build(self) -> bool:
        """Build it; returns whether the env declares that it releases the GIL."""
        (spec,) = self.shard.build([self._make])
        self._adapter = self.shard.envs.adapters[0]
        self._permitted = getattr(self._adapter, "permitted", None)
        # A copy: the env's own space, which others may share, stays as it is. Drawn
        # beforehand: with two threads each draw would be in the other's way.
        space = copy.deepcopy(spec.action_space)
        space.seed(0)
        self.actions = cycle([space.sample() for _ in range(SAMPLED_ACTIONS)])
        self.refuses_threads = spec.metadata.get(THREADS_KEY) is False
        return bool(spec.metadata.get(THREADS_KEY))

    def _make(self) -> Any:
        self.made = self._factory()
        return self.made

    @property
    def env(self) -> Any:
        """The env itself."""
        return self._adapter.env

    def reset(self, seed: int | None) -> Any:
        """Begin an episode; what the env draws is its own, where that was asked for."""
        self.calls += 1
        task = sampled_task(self._options, self.slot, self._episode)
        self._episode += 1
        with self.shard.envs.randomness_of(self.slot):
            return self._guarded(self._adapter.reset, seed, None, task)

    def step(self, action: Any) -> Any:
        """One step, likewise."""
        self.calls += 1
        if self._permitted is not None:
            action = self._permitted(action)
        with self.shard.envs.randomness_of(self.slot):
            return self._guarded(self._adapter.step, action)

    def _guarded(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            result = call(*arguments)
        except BaseException as error:
            self._guard(error)
            raise
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

    def run(self, until: float, most_steps: int | None = None) -> TimedTurn:
        """Step until then, once at least; from a reset on, if it had none."""
        if not self.calls:
            self.reset(0)
        step, reset = self._adapter.step, self._adapter.reset
        if self._options.isolate_rng or self._options.sample_task is not None:
            step, reset = self.step, lambda *_: self.reset(None)
        steps, stepping, computing = 0, 0.0, 0.0
        began, own = time.perf_counter(), own_time()
        for action in self.actions:
            if self._permitted is not None:
                action = self._permitted(action)
            worked = time.process_time()
            before = time.perf_counter()
            try:
                _, _, terminated, truncated, _ = step(action)
                if terminated or truncated:
                    reset(None, None, NO_TASK)
            except BaseException as error:
                self._guard(error)
                raise
            now = time.perf_counter()
            computing += time.process_time() - worked
            stepping += now - before
            steps += 1
            self._guard()
            if now >= until or steps == most_steps:
                break
        elapsed = time.perf_counter() - began
        undisturbed = max(0.01, (own_time() - own) / elapsed)
        return TimedTurn(
            steps, elapsed * undisturbed, stepping * undisturbed, computing
        )

    def close(self) -> None:
        """Close it."""
        self.shard.close()

    def close_quietly(self) -> None:
        """Close an env that another one may have broken; errors are ignored."""
        while self.shard.envs.adapters:
            with suppress(Exception):
                self._guarded(self.shard.envs.adapters.pop().close)


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
