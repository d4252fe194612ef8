"""What a pool has been doing, as one value: which workers were busy, what took long.

Workers count times all the time, so `pool.stats()` costs nothing until it is called.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from corral.engine.executors.contract import Executor
from corral.engine.faults.process_memory import memory_of
from corral.engine.faults.run_delay import run_delay
from corral.engine.layout.durations import duration_text, percentile
from corral.engine.pool.state import PoolState


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, by slot; seconds, nan where it never happened."""

    counts: NDArray[np.int64]
    """[slots, buckets], by length; see `layout.durations`."""
    seconds: NDArray[np.float64]
    """[slots]: all of them together."""

    @property
    def number(self) -> NDArray[np.int64]:
        """How often."""
        total: NDArray[np.int64] = self.counts.sum(axis=1)
        return total

    @property
    def mean(self) -> NDArray[np.float64]:
        """The average."""
        number = self.number
        return np.where(number > 0, self.seconds / np.maximum(number, 1), np.nan)

    @property
    def p50(self) -> NDArray[np.float64]:
        """The median; all percentiles are right to a tenth."""
        return percentile(self.counts, 0.5)

    @property
    def p90(self) -> NDArray[np.float64]:
        """The 90th percentile."""
        return percentile(self.counts, 0.9)

    @property
    def p99(self) -> NDArray[np.float64]:
        """The 99th percentile."""
        return percentile(self.counts, 0.99)

    def overall(self, fraction: float) -> float:
        """A percentile over all slots together."""
        return float(percentile(self.counts.sum(axis=0), fraction))

    def since(self, earlier: Times) -> Times:
        """Those after `earlier`."""
        return Times(self.counts - earlier.counts, self.seconds - earlier.seconds)


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """One worker."""

    worker: int
    slots: range
    pid: int
    busy_seconds: float
    busy: float
    """The fraction of the time that it spent on commands."""
    memory: int | None
    """Bytes now; of the whole program where the worker is no process of its own."""
    starved_seconds: float | None
    starved: float | None
    """The fraction of the time that it was ready to run and had no core; None where
    that is not counted, or the worker is no process of its own."""


@dataclass(frozen=True, slots=True)
class Stats:
    """A pool's times since it was opened, or since an earlier `stats()`."""

    seconds: float
    policy: float
    """Seconds in which the workers had no command and waited for the caller."""
    waiting: float
    """Seconds that the caller waited for results; under serial, ran the envs."""
    copying: float
    """Seconds in send and recv otherwise: packing actions, copying results."""
    step: Times
    reset: Times
    workers: tuple[WorkerStats, ...]

    @property
    def steps(self) -> int:
        """Env steps, all slots together."""
        return int(self.step.counts.sum())

    @property
    def steps_per_second(self) -> float:
        """The rate over the whole time."""
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def overlapped(self) -> float:
        """Seconds of the caller's own work while commands were under way."""
        accounted = self.policy + self.waiting + self.copying
        return max(0.0, self.seconds - accounted)

    def slowest(self, count: int = 3) -> tuple[int, ...]:
        """The slots with the longest mean step, slowest first."""
        mean = np.nan_to_num(self.step.mean, nan=-1.0)
        return tuple(np.argsort(-mean, kind="stable")[:count].tolist())

    def since(self, earlier: Stats) -> Stats:
        """The same for the time since `earlier`; memory is as it is now."""
        seconds = self.seconds - earlier.seconds
        pairs = zip(self.workers, earlier.workers, strict=True)
        return Stats(
            seconds=seconds,
            policy=self.policy - earlier.policy,
            waiting=self.waiting - earlier.waiting,
            copying=self.copying - earlier.copying,
            step=self.step.since(earlier.step),
            reset=self.reset.since(earlier.reset),
            workers=tuple(_since(now, then, seconds) for now, then in pairs),
        )

    def __str__(self) -> str:
        slowest = ", ".join(map(str, self.slowest()))
        lines = [
            f"{self.steps:,} steps in {self.seconds:.2f} s "
            f"({self.steps_per_second:,.0f}/s); caller: {self._caller()}",
            f"step   {_summary(self.step)}; slowest slots {slowest}",
            f"reset  {_summary(self.reset)}",
        ]
        return "\n".join([*lines, *map(_line, self.workers)])

    def _caller(self) -> str:
        parts = [
            f"{getattr(self, name) / self.seconds:.0%} {name}"
            for name in ("policy", "waiting", "copying", "overlapped")
            if self.seconds
        ]
        return ", ".join(parts)


class CpuContention:
    """How long worker processes waited for a core since the pool was opened.

    Other programs, or the policy, had the cores meanwhile.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        # What they waited while they were started belongs to no step.
        self._before = {pid: run_delay(pid) or 0.0 for pid in pids}

    def seconds(self, pid: int) -> float | None:
        """Seconds so far; None where they are not counted, or for the caller's process.

        A worker that was replaced meanwhile counts from its own start.
        """
        now = None if pid == os.getpid() else run_delay(pid)
        return None if now is None else now - self._before.get(pid, 0.0)


def stats_of(executor: Executor, state: PoolState, contention: CpuContention) -> Stats:
    """The stats of a pool now."""
    now = perf_counter()
    seconds = now - state.opened_at
    # In the middle of it, if nothing is under way.
    policy = state.policy_seconds + (0.0 if state.waiting else now - state.mark)
    return Stats(
        seconds=seconds,
        policy=policy,
        waiting=state.waiting_seconds,
        copying=state.copying_seconds,
        step=_times(executor.times, "step"),
        reset=_times(executor.times, "reset"),
        workers=tuple(_workers(executor, state, contention, seconds)),
    )


def _workers(
    executor: Executor, state: PoolState, contention: CpuContention, seconds: float
) -> Iterator[WorkerStats]:
    pairs = zip(executor.shards, executor.vitals(), strict=True)
    for worker, (shard, vitals) in enumerate(pairs):
        busy = vitals.busy_seconds
        if busy is None:  # the caller, which runs the envs while it waits for them
            busy = state.waiting_seconds
        starved = contention.seconds(vitals.pid)
        yield WorkerStats(
            worker=worker,
            slots=shard,
            pid=vitals.pid,
            busy_seconds=busy,
            busy=_fraction(busy, seconds),
            memory=memory_of(vitals.pid),
            starved_seconds=starved,
            starved=None if starved is None else _fraction(starved, seconds),
        )


def _times(times: NDArray[np.void], kind: str) -> Times:
    return Times(times[kind].astype(np.int64), times[f"{kind}_seconds"].copy())


def _since(now: WorkerStats, then: WorkerStats, seconds: float) -> WorkerStats:
    # One that was replaced meanwhile counts from its own start.
    same = now.pid == then.pid
    busy = now.busy_seconds - (then.busy_seconds if same else 0.0)
    starved = now.starved_seconds
    if starved is not None and same:
        starved -= then.starved_seconds or 0.0
    return replace(
        now,
        busy_seconds=busy,
        busy=_fraction(busy, seconds),
        starved_seconds=starved,
        starved=None if starved is None else _fraction(starved, seconds),
    )


def _fraction(part: float, seconds: float) -> float:
    """Of the time; clocks that were read one after the other may make it more."""
    return min(1.0, part / seconds) if seconds else 0.0


def _line(worker: WorkerStats) -> str:
    first, last = worker.slots.start, worker.slots.stop - 1
    slots = str(first) if first == last else f"{first}-{last}"
    facts = [f"worker {worker.worker}: slots {slots}", f"{worker.busy:.0%} busy"]
    if worker.starved is not None:
        facts.append(f"{worker.starved:.0%} starved")
    memory = "?" if worker.memory is None else f"{worker.memory / 2**20:.0f}"
    return ", ".join([*facts, f"{memory} MiB", f"pid {worker.pid}"])


def _summary(times: Times) -> str:
    if not times.counts.any():
        return "none yet"
    shown = ", ".join(
        f"{name} {duration_text(times.overall(fraction))}"
        for name, fraction in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    )
    return f"{shown}, {int(times.counts.sum()):,} times"
