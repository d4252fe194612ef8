"""How many workers, of which kind, and why. How long a batch of steps would take:

    in the caller   slots × step
    on workers      the larger of   largest shard × step        the slowest worker
                                    slots × computing / cores   cores are shared
                    and what waking so many workers costs
    on threads      the same, with steps that queue for the GIL

The estimates are pure arithmetic on the measurements of a probe; the constants were
measured as well.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from corral.engine.layout.durations import duration_text
from corral.engine.worker import compiled
from corral.engine.worker.probe import (
    MIN_WAITING_STEP_SECONDS,
    WAITING_CPU_SHARE,
    Measurement,
)

PLACES = {"serial": "in the caller", "thread": "threads", "process": "processes"}


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the slots of a pool run, and the reason.

    Attributes:
        step_time: Seconds per env step, where it was measured.
        computing: The fraction of a step that needs a core, where it was measured.
        sharing: Why several slots have one process, where they do.
        extra_envs: How many extra envs were built, and closed again, for the trial.
        acting: Where the policy acts, and why, if a run has chosen that.
    """

    backend: str
    workers: int
    num_envs: int
    reason: str
    step_time: float | None = None
    computing: float | None = None
    sharing: str = ""
    extra_envs: int = 0
    acting: str = ""

    def __str__(self) -> str:
        slots = "1 slot" if self.num_envs == 1 else f"{self.num_envs} slots"
        text = f"{slots}, {_workers(self.workers, self.backend)}: {self.reason}"
        sharing = f"; {self.sharing}" if self.sharing else ""
        built = f" (extra envs built to find out: {self.extra_envs})"
        acting = f"; {self.acting}" if self.acting else ""
        return text + sharing + (built if self.extra_envs else "") + acting


def _workers(count: int, backend: str) -> str:
    """How many of which kind, as "1 process" or "4 threads"."""
    if backend == "serial":
        return PLACES[backend]
    return f"1 {backend}" if count == 1 else f"{count} {PLACES[backend]}"


def usable_cores() -> int:
    """Cores that this process may use, by affinity and cgroup limits."""
    known = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, cgroup_limit())))


def cgroup_limit(root: Path = Path("/sys/fs/cgroup")) -> float:
    """The CPU quota of a container, in cores; infinite without one."""
    versions = ("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
    for names in versions:
        with suppress(OSError, ValueError):
            texts = [(root / name).read_text() for name in names]
            quota, period = " ".join(texts).split()
            # Without a quota: "max", or -1.
            return int(quota) / int(period) if quota.isdigit() else math.inf
    return math.inf


def shards(slots: int, workers: int) -> list[range]:
    """Contiguous shards whose sizes differ by one at most."""
    small, larger = divmod(slots, workers)
    bounds = [small * worker + min(worker, larger) for worker in range(workers + 1)]
    return [range(first, end) for first, end in pairwise(bounds)]


def worker_and_index(slot: int, shards: Sequence[range]) -> tuple[int, int]:
    """The worker that has the slot, and the slot's index in its shard."""
    for worker, shard in enumerate(shards):
        if slot in shard:
            return worker, slot - shard.start
    raise AssertionError(f"no worker has slot {slot}")


def enough_workers(slots: int, cores: int) -> int:
    """The fewest workers with which the largest shard is as small as with all cores."""
    most = min(slots, cores)
    return math.ceil(slots / math.ceil(slots / most))


# For envs that wait. A worker with Gymnasium and nothing else takes 25 MiB and 0.13 s
# to start (64 of them on 2 cores: 1.6 GiB, 8.2 s), one with torch 160 MiB. Eight envs
# that sleep 1 ms run 1.95 times as fast in 2 processes, 6.8 times in 8.
MAX_PROCESSES = 64
# The same for threads: 64 of them take 4 MiB and start in 0.04 s, and 512 envs that
# sleep 20 ms are 3.3 times as fast in 256 as in 64.
MAX_THREADS = 256
# Threads start at once and share their memory: where the env declares that it is made
# for them, they are chosen even if they are this much slower than processes.
THREADS_ADVANTAGE = 1.1


def useful_processes(
    num_envs: int, cores: int, measured: Measurement
) -> tuple[int, str]:
    """The number of processes if the user gave none; and why, if not the usual one."""
    usual = enough_workers(num_envs, cores)
    _, count = _quickest("process", num_envs, cores, measured, {usual})
    waits = measured.computing < WAITING_CPU_SHARE
    if count == usual or not waits or measured.step_time < MIN_WAITING_STEP_SECONDS:
        return usual, ""
    return count, (
        f"a step takes {duration_text(measured.step_time)}, {measured.computing:.0%} "
        "of it computing, so more of them than cores (at 25 MiB each: "
        f"{count * 25} MiB)"
    )


FORKS_REASON = (
    "an env forked its process in a trial run, so the slots are in worker processes: "
    "in the caller a forked child could continue as a copy of your program"
)


def choose(num_envs: int, cores: int, measured: Measurement) -> Placement:
    """The quickest of caller, processes and threads, for a batch of such steps.

    Envs that fork get processes: a worker process ends a forked child that returns from
    a step; in the caller it would continue as a copy of the caller's program.
    """
    serial = batch_time("serial", num_envs, cores, 1, measured)
    threaded = measured.threads and not measured.forks
    estimates = {
        kind: _quickest(kind, num_envs, cores, measured, set())
        for kind in (("process", "thread") if threaded else ("process",))
    }
    workers = {kind: best for kind, best in estimates.items() if best[0] < math.inf}
    reason = _reason(num_envs, measured, serial, workers)
    processes, threads = (
        workers.get(kind, (math.inf, 1))[0] for kind in ("process", "thread")
    )
    kind = "thread" if threads <= THREADS_ADVANTAGE * processes else "process"
    if serial <= min(threads, processes):
        kind = "serial"
    if measured.forks:
        kind, reason = "process", f"{reason}; {FORKS_REASON}"
    count = workers[kind][1] if kind in workers else 1
    return Placement(
        kind, count, num_envs, reason, measured.step_time, measured.computing
    )


def _quickest(
    kind: str, num_envs: int, cores: int, measured: Measurement, usual: set[int]
) -> tuple[float, int]:
    """Seconds of the quickest batch on such workers, and how many; inf for none."""
    most = MAX_THREADS if kind == "thread" else MAX_PROCESSES
    counts = usual | worker_counts(num_envs, cores, measured.computing, most)
    return min(
        (
            (batch_time(kind, num_envs, cores, count, measured), count)
            for count in counts
        ),
        default=(math.inf, 1),
    )


def worker_counts(num_envs: int, cores: int, computing: float, most: int) -> set[int]:
    """About as many as cores; more where envs wait and leave the cores idle."""
    # It may be better to leave one core to the parent, if two workers remain.
    counts = {cores, max(2, cores - 1)} if cores > 1 else set()
    if computing < WAITING_CPU_SHARE:
        useful = min(most, math.ceil(cores / max(computing, 1e-6)))
        doubled = {cores << times for times in range(1, MAX_THREADS.bit_length())}
        counts |= {useful, *(count for count in doubled if count < useful)}
    return {enough_workers(num_envs, count) for count in counts} - {1}


def _reason(
    num_envs: int,
    measured: Measurement,
    serial: float,
    workers: dict[str, tuple[float, int]],
) -> str:
    step = f"a step takes {duration_text(measured.step_time)}"
    if measured.computing < WAITING_CPU_SHARE:
        step += f", {measured.computing:.0%} of it computing"
    if not workers:
        return f"{step}; there is one usable core"
    *most, last = [
        f"{duration_text(serial)} in the caller",
        *(
            f"{duration_text(batch)} on {_workers(count, kind)}"
            for kind, (batch, count) in workers.items()
        ),
    ]
    text = f"{step}, so a batch of {num_envs} about {', '.join(most)} and {last}"
    if measured.threads:
        says = "the env says that it releases the GIL"
        waits = "the env waits with the GIL released"
        text += (
            f"; {says if measured.declared else waits}, and two threads did "
            f"{measured.thread_gain:.2f} times the work of one"
        )
    return text


# Estimates ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BatchOverhead:
    """Seconds that a batch takes on top of the env steps, as measured.

    Attributes:
        spinning: Per batch and per worker, with a core left for the parent, which then
            spins.
        sleeping: The same where the parent has to be woken.
        crowded: The same with more workers than cores, each of which has to be woken.
        threads: What a batch takes longer on threads, which pass the GIL around.
    """

    serial_per_slot: float
    worker_per_slot: float
    spinning: tuple[float, float]
    sleeping: tuple[float, float]
    crowded: tuple[float, float]
    threads: float


# Measured on 2 and on 16 cores; the Python twins, `crowded` and `threads` on 2.
COMPILED_OVERHEAD = BatchOverhead(
    serial_per_slot=0.3e-6,
    worker_per_slot=0.5e-6,
    spinning=(15e-6, 1e-6),
    sleeping=(30e-6, 4e-6),
    crowded=(30e-6, 25e-6),
    threads=15e-6,
)
PYTHON_OVERHEAD = BatchOverhead(
    serial_per_slot=2.2e-6,
    worker_per_slot=2.7e-6,
    spinning=(60e-6, 20e-6),
    sleeping=(60e-6, 20e-6),
    crowded=(60e-6, 60e-6),
    threads=75e-6,
)
OVERHEAD = COMPILED_OVERHEAD if compiled.COMPILED else PYTHON_OVERHEAD


def batch_time(
    kind: str, num_envs: int, cores: int, workers: int, measured: Measurement
) -> float:
    """Seconds of a batch in the caller, or on this number of processes or threads."""
    step_time = measured.step_time
    if kind == "serial":
        return num_envs * (step_time + OVERHEAD.serial_per_slot)
    if kind == "thread":
        step_time *= stretch(workers, gil_share(measured))
    slowest = math.ceil(num_envs / workers) * (step_time + OVERHEAD.worker_per_slot)
    computing = num_envs * measured.computing * measured.step_time / cores
    waking = OVERHEAD.crowded if workers > cores else OVERHEAD.sleeping
    per_batch, per_worker = OVERHEAD.spinning if workers < cores else waking
    passing = OVERHEAD.threads if kind == "thread" else 0.0
    return max(slowest, computing) + per_batch + workers * per_worker + passing


def gil_share(measured: Measurement) -> float:
    """The fraction of a step that holds the GIL, from what two threads gained."""
    # `stretch` for two threads is 1 + share ** 2, and it is 2 / gain.
    queued = 2.0 / measured.thread_gain - 1.0
    share = math.sqrt(min(1.0, max(0.0, queued)))
    return min(share, measured.computing)  # an env that waits does not hold the GIL


def stretch(workers: int, share: float) -> float:
    """How many times as long a step takes among threads that queue for the GIL.

    Mean value analysis of a closed queue: a thread that comes to the GIL finds there
    as many as are there on average with one thread less.
    """
    queue, cycle = 0.0, 1.0
    for threads in range(1, workers + 1):
        held = share * (1.0 + queue)
        cycle = 1.0 - share + held
        queue = threads * held / cycle
    return cycle
