"""What a pool has been doing, as one value: which workers were busy, what took long.

Workers count times all the time, so `pool.stats()` costs nothing until it is called.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from corral.engine.executors.contract import Executor
from corral.engine.faults.process_usage import memory_of, run_delay
from corral.engine.layout.durations import duration_text, percentile
from corral.engine.layout.plan import BUSY_SECONDS
from corral.engine.pool.state import PoolState


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, by slot; seconds, nan where it never happened.

    Attributes:
        counts: [slots, buckets], by length; see `layout.durations`.
        seconds: [slots]: all of them together.
    """

    counts: NDArray[np.int64]
    seconds: NDArray[np.float64]

    @property
    def number(self) -> NDArray[np.int64]:
        """How often."""
        return self.counts.sum(axis=1)  # type: ignore[no-any-return]

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

    def since(self, earlier: Times) -> Times:
        """Those after `earlier`."""
        return Times(self.counts - earlier.counts, self.seconds - earlier.seconds)

    def __str__(self) -> str:
        counts = self.counts.sum(axis=0)
        if not counts.any():
            return "none yet"
        parts = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
        shown = [
            f"{p} {duration_text(float(percentile(counts, at)))}" for p, at in parts
        ]
        return f"{', '.join(shown)}, {int(counts.sum()):,} times"


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """One worker.

    Attributes:
        memory: Bytes now; of the whole program where the worker is not a separate
            process. None if it could not be read, or was not asked for.
    """

    worker: int
    slots: range
    pid: int
    # The time that all of this is about.
    _seconds: float
    busy_seconds: float
    memory: int | None
    starved_seconds: float | None

    @property
    def busy(self) -> float:
        """The fraction of the time that it spent on commands."""
        return self._fraction(self.busy_seconds)

    @property
    def starved(self) -> float | None:
        """The fraction of the time that it was ready to run and had no core.

        None where that is not counted, or the worker is not a separate process.
        """
        seconds = self.starved_seconds
        return None if seconds is None else self._fraction(seconds)

    def _fraction(self, part: float) -> float:
        # Clocks that were read one after the other may make it more than the whole.
        return min(1.0, part / self._seconds) if self._seconds else 0.0

    def _since(self, earlier: WorkerStats) -> WorkerStats:
        """The same for the time since `earlier`."""
        starved = self.starved_seconds
        # One that replaced it counts from its own start. Until it is there, `pid` is
        # that of the one before.
        same = self.pid == earlier.pid and self.busy_seconds >= earlier.busy_seconds
        if same and starved is not None:
            starved -= earlier.starved_seconds or 0.0
        return replace(
            self,
            _seconds=self._seconds - earlier._seconds,
            busy_seconds=self.busy_seconds - same * earlier.busy_seconds,
            starved_seconds=starved,
        )

    def __str__(self) -> str:
        first, last = self.slots.start, self.slots.stop - 1
        slots = str(first) if first == last else f"{first}-{last}"
        starved = "" if self.starved is None else f", {self.starved:.0%} starved"
        memory = "?" if self.memory is None else f"{self.memory / 2**20:.0f}"
        return (
            f"worker {self.worker}: slots {slots}, {self.busy:.0%} busy{starved}, "
            f"{memory} MiB, pid {self.pid}"
        )


@dataclass(frozen=True, slots=True)
class Stats:
    """A pool's times since it was opened, or since an earlier `stats()`.

    Attributes:
        policy: Seconds in which the workers had no command and waited for the caller.
        waiting: Seconds that the caller waited for results; under serial, ran the envs.
        copying: Seconds in send and recv otherwise: packing actions, copying results.
    """

    seconds: float
    policy: float
    waiting: float
    copying: float
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
        """Seconds of the caller's own work while commands were pending."""
        return max(0.0, self.seconds - self.policy - self.waiting - self.copying)

    def slowest(self, count: int = 3) -> tuple[int, ...]:
        """The slots with the longest mean step, slowest first."""
        mean = np.nan_to_num(self.step.mean, nan=-1.0)
        return tuple(np.argsort(-mean, kind="stable")[:count].tolist())

    def since(self, earlier: Stats) -> Stats:
        """The same for the time since `earlier`; memory is as it is now."""
        pairs = zip(self.workers, earlier.workers, strict=True)
        return Stats(
            seconds=self.seconds - earlier.seconds,
            policy=self.policy - earlier.policy,
            waiting=self.waiting - earlier.waiting,
            copying=self.copying - earlier.copying,
            step=self.step.since(earlier.step),
            reset=self.reset.since(earlier.reset),
            workers=tuple(now._since(then) for now, then in pairs),
        )

    def __str__(self) -> str:
        parts = ("policy", "waiting", "copying", "overlapped")
        caller = [
            f"{getattr(self, one) / (self.seconds or 1):.0%} {one}" for one in parts
        ]
        slowest = ", ".join(map(str, self.slowest()))
        lines = (
            f"{self.steps:,} steps in {self.seconds:.2f} s "
            f"({self.steps_per_second:,.0f}/s); caller: {', '.join(caller)}",
            f"step   {self.step}; slowest slots {slowest}",
            f"reset  {self.reset}",
            *map(str, self.workers),
        )
        return "\n".join(lines)


def stats_of(
    executor: Executor,
    state: PoolState,
    run_delays: Mapping[int, float],
    with_memory: bool,
) -> Stats:
    """The stats of a pool now.

    Args:
        executor: of the pool.
        state: of the pool.
        run_delays: by pid, the seconds that a worker waited for a core while it was
            started; they belong to no step. A worker that replaced another is not in
            it and counts from its own start.
        with_memory: whether to read the memory of the workers.
    """
    now = perf_counter()
    seconds = now - state.opened_at
    busy = executor.control.vitals[:, BUSY_SECONDS].tolist()
    pairs = zip(executor.shards, executor.pids(), strict=True)
    workers = [
        WorkerStats(
            worker,
            slots,
            pid,
            seconds,
            # Inline, the caller runs the envs while it waits for them.
            state.waiting_seconds if executor.inline else busy[worker],
            memory_of(pid) if with_memory else None,
            _starved(pid, run_delays.get(pid, 0.0)),
        )
        for worker, (slots, pid) in enumerate(pairs)
    ]
    return Stats(
        seconds=seconds,
        # In the middle of it, if nothing is pending.
        policy=state.policy_seconds + (0.0 if state.waiting else now - state.mark),
        waiting=state.waiting_seconds,
        copying=state.copying_seconds,
        step=_times(executor.control.times, "step"),
        reset=_times(executor.control.times, "reset"),
        workers=tuple(workers),
    )


def _starved(pid: int, before: float) -> float | None:
    """Seconds without a core; None where they are not counted, or for the caller."""
    now = None if pid == os.getpid() else run_delay(pid)
    return None if now is None else now - before


def _times(times: NDArray[np.void], kind: str) -> Times:
    return Times(times[kind].astype(np.int64), times[f"{kind}_seconds"].copy())
