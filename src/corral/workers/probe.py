"""What a step of an env costs, found out before the pool decides where it runs.

    most envs        first, then second
    those that say   first, then second, then both at once; three times
    "corral.threads" (the second is built and stepped in a thread of its own)

The wall time of a step says how long a loop takes, its CPU time how many workers a core
can serve, and the two threads how long a step holds the GIL. That there are two of them
in one process shows whether the env bears company.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corral.adapters.verdicts import isolation_of
from corral.core import NO_TASK
from corral.workers import company
from corral.workers.context import WorkerContext, here
from corral.workers.copies import Guard, no_guard
from corral.workers.luggage import opened
from corral.workers.shard import Shard
from corral.workers.worker import Job, Worker

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

DECLARATION = "corral.threads"
"""The key of an env's metadata that says its steps release the GIL."""
ACTIONS = 64
MOST_STEPS = 1000
"""Of one env that has the worker to itself; enough, where a step takes microseconds."""
ROUNDS = 3
COLD = 2.0
"""How many times as long as the second env's steps the first one's may be."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a probe found out."""

    step_time: float
    """Seconds per step, the resets of ended episodes included."""
    computing: float = 1.0
    """The fraction of it that needs a core; the rest is waiting."""
    threads: bool = False
    """Whether the env says that it releases the GIL."""
    thread_gain: float = 1.0
    """How many times as much two threads do as one; measured where it says so."""
    alone: str = ""
    """Why such envs must not share a process, if they must not."""


def probe(job: Job, seconds: float, guard: Guard = no_guard) -> Measurement:
    """Build two envs, step them for a while with sampled actions, and close them.

    Whether they bear company is looked at where the options say that it matters.
    """
    # The resources alone: the envs are built one by one, maybe in two threads.
    worker = Worker(replace(job, slots=range(0), factories=()), guard=guard)
    worker.build()
    worker.context.slots = job.slots
    pair = _Pair(job, opened(job.factories), guard)
    first = pair.first
    try:
        threads = first.build()
        verdict = isolation_of(first.env) if job.options.minds_company else None
        if verdict is not None and verdict.isolation == "slot":
            turn = first.run(time.perf_counter() + seconds / 2, MOST_STEPS)
            return replace(_measurement([turn]), alone=verdict.reason)
        if threads:
            with _thread_of(worker.context) as thread:
                return _both_ways(first, pair.second, thread, seconds)
        doubtful = job.options.minds_company and verdict is None
        return _in_turn(pair, seconds, doubtful)
    finally:
        pair.first.shard.close()
        pair.second.shard.close()


def _in_turn(pair: _Pair, seconds: float, doubtful: bool) -> Measurement:
    """One env, then the other; and both by turns, if they may disturb each other."""
    turn = pair.first.run(time.perf_counter() + seconds / 2, MOST_STEPS)
    usual = company.repeats(pair.first, turn.step_time) if doubtful else None
    alone = ""
    try:
        pair.second.build()
    except Exception as error:
        if not doubtful:
            raise
        alone = company.unbearable(pair, error)
        if not alone:  # it goes on as a worker
            sys.unraisablehook = sys.__unraisablehook__
    if not alone and usual is not None:
        alone = company.disturbed(pair.first, pair.second, usual)
    if alone:
        pair.first.dismiss()
        pair.second.dismiss()
        return replace(_measurement([turn]), alone=alone)
    other = pair.second.run(time.perf_counter() + seconds / 2, MOST_STEPS)
    # The first step in a process may compile or load; the other env found that done.
    cold = turn.step_time > COLD * other.step_time
    return _measurement([other] if cold else [turn, other])


def _thread_of(context: WorkerContext) -> ThreadPoolExecutor:
    """One thread that belongs to the worker: `this_worker` answers in it too."""
    # Here, since it takes 5 ms and most workers never need it.
    from concurrent.futures import ThreadPoolExecutor

    def enter() -> None:
        here.context = context

    return ThreadPoolExecutor(1, "corral-probe", enter)


@dataclass(frozen=True, slots=True)
class _Turn:
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


class _Pair:
    """Two envs of one process, which can be built once more, in both ways."""

    def __init__(
        self, job: Job, factories: Sequence[Callable[[], Any]], guard: Guard
    ) -> None:
        self._job = job
        self._guard = guard
        self._factories = factories
        self._renew()

    def _renew(self) -> None:
        self.first, self.second = (
            _Trial(self._job, slot, self._factories[slot], self._guard)
            for slot in range(2)
        )

    def _clear(self) -> None:
        """As if neither had been built, as far as they let us."""
        self.first.dismiss()
        self.second.dismiss()
        self._renew()

    def build_second(self) -> None:
        """The second alone."""
        self._clear()
        self.second.build()

    def build_both(self) -> None:
        """The first, and the second beside it."""
        self._clear()
        self.first.build()
        self.second.build()


class _Trial:
    """One env that is stepped to see how long that takes."""

    def __init__(
        self, job: Job, slot: int, factory: Callable[[], Any], guard: Guard
    ) -> None:
        # With generators of its own, where company is looked at: whoever draws from
        # global ones is disturbed by others there, for which there is `isolate_rng`.
        apart = job.options.isolate_rng or job.options.minds_company
        options = replace(job.options, isolate_rng=apart, minds_company=False)
        self.shard = Shard(job.worker, range(slot, slot + 1), options)
        self.shard.guard = self._guard = guard
        self._slot = slot
        self._factory = factory

    def build(self) -> bool:
        """Build and reset; returns whether the env says that it releases the GIL."""
        (spec,) = self.shard.build([self._factory])
        spec.action_space.seed(0)
        self._adapter = self.shard.adapters[0]
        began = time.perf_counter()
        self._guarded(self._adapter.reset, 0, None, NO_TASK)
        self.reset_time = time.perf_counter() - began
        self._permitted = getattr(self._adapter, "permitted", None)
        # Drawn beforehand: with two threads each draw would be in the other's way.
        self.actions = [spec.action_space.sample() for _ in range(ACTIONS)]
        self._actions = cycle(self.actions)
        return bool(spec.metadata.get(DECLARATION))

    @property
    def env(self) -> Any:
        """The env itself."""
        return self._adapter.env

    def dismiss(self) -> None:
        """Close what another one broke: what it says to that tells nobody anything."""
        # Nor what it says when it is collected, in a process that has served its turn.
        sys.unraisablehook = lambda unraisable: None
        while self.shard.adapters:
            with suppress(Exception):
                self._guarded(self.shard.adapters.pop().close)

    def reset(self, seed: int) -> Any:
        """Begin an episode; what the env draws is its own."""
        with self.shard.randomness_of(self._slot):
            return self._guarded(self._adapter.reset, seed, None, NO_TASK)[0]

    def step(self, action: Any) -> Any:
        """One step, likewise."""
        if self._permitted is not None:
            action = self._permitted(action)
        with self.shard.randomness_of(self._slot):
            return self._guarded(self._adapter.step, action)

    def _guarded(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            result = call(*arguments)
        except BaseException as error:
            self._guard(error)
            raise
        self._guard()
        return result

    def run(self, until: float, most_steps: int | None = None) -> _Turn:
        """Step until then, once at least."""
        adapter, steps, stepping, computing = self._adapter, 0, 0.0, 0.0
        began, delayed = time.perf_counter(), _delayed()
        for action in self._actions:
            if self._permitted is not None:
                action = self._permitted(action)
            worked = time.process_time()
            before = time.perf_counter()
            try:
                _, _, terminated, truncated, _ = adapter.step(action)
                if terminated or truncated:
                    adapter.reset(None, None, NO_TASK)
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
        delayed = _delayed() - delayed
        elapsed = time.perf_counter() - began
        undisturbed = max(0.01, 1.0 - delayed / elapsed)
        return _Turn(steps, elapsed * undisturbed, stepping * undisturbed, computing)


def _both_ways(
    first: _Trial, second: _Trial, thread: ThreadPoolExecutor, seconds: float
) -> Measurement:
    """Each env alone, then both at once; in rounds, since machines change pace."""
    turn, alone, gains = seconds / (3 * ROUNDS), list[_Turn](), list[float]()
    try:
        declared = thread.submit(second.build).result()
        ending = time.perf_counter() + 0.75 * seconds
        # Steps that are longer than a turn get one round.
        while not gains or (len(gains) < ROUNDS and time.perf_counter() < ending):
            alone.append(first.run(time.perf_counter() + turn))
            until = time.perf_counter() + turn
            alone.append(thread.submit(second.run, until).result())
            until = time.perf_counter() + turn
            pending = thread.submit(second.run, until)
            beside = [first.run(until), pending.result()]
            pairs = zip(beside, alone[-2:], strict=True)
            gains.append(sum(both.pace / one.pace for both, one in pairs))
    finally:  # in the thread that built it
        thread.submit(second.shard.close).result()
    # The lowest: a round that was disturbed must not recommend threads.
    return replace(_measurement(alone), threads=declared, thread_gain=min(gains))


def _measurement(turns: list[_Turn]) -> Measurement:
    stepping = sum(turn.stepping for turn in turns)
    computing = sum(turn.computing for turn in turns)
    step_time = stepping / sum(turn.steps for turn in turns)
    return Measurement(step_time, min(1.0, computing / stepping))


def _delayed() -> float:
    """Seconds that this thread was ready to run and had no core; Linux counts them."""
    try:
        counted = Path("/proc/thread-self/schedstat").read_text()
        return int(counted.split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0
