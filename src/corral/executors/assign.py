"""Slots -> workers: how many, of which kind, and why."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from corral.transport import doorbell
from corral.workers import record


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the slots of a pool run, and the reason."""

    backend: str
    workers: int
    num_envs: int
    reason: str
    step_time: float | None = None
    """Seconds per env step, where it was measured."""

    def __str__(self) -> str:
        kind = {"serial": "in the caller", "thread": "threads", "process": "processes"}
        count = "" if self.backend == "serial" else f"{self.workers} "
        slots = "1 slot" if self.num_envs == 1 else f"{self.num_envs} slots"
        return f"{slots}, {count}{kind[self.backend]}: {self.reason}"


def usable_cores() -> int:
    """Cores this process may use: affinity and cgroup limits counted."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, cgroup_limit())))


def cgroup_limit(root: Path = Path("/sys/fs/cgroup")) -> float:
    """The CPU quota of a container, in cores; infinite without one."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        microseconds = int((root / "cpu/cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu/cpu.cfs_period_us").read_text())
        return math.inf if microseconds <= 0 else microseconds / period_us
    except (OSError, ValueError):
        return math.inf


def shards(slots: int, workers: int) -> list[range]:
    """Contiguous shards whose sizes differ by one at most."""
    small, larger = divmod(slots, workers)
    bounds = [0]
    for worker in range(workers):
        bounds.append(bounds[-1] + small + (worker < larger))
    return [range(first, end) for first, end in pairwise(bounds)]


def place_of(slot: int, shards: Sequence[range]) -> tuple[int, int]:
    """The worker that has the slot, and the slot's index in its shard."""
    for worker, shard in enumerate(shards):
        if slot in shard:
            return worker, slot - shard.start
    raise AssertionError(f"no worker has slot {slot}")


def enough_workers(slots: int, cores: int) -> int:
    """As few workers as leave the largest shard as small as all cores would."""
    most = min(slots, cores)
    return math.ceil(slots / math.ceil(slots / most))


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that a batch takes on top of the env steps, as measured."""

    serial_per_slot: float
    worker_per_slot: float
    spinning: tuple[float, float]
    """Per batch and per worker, with a core left for the parent, which then spins."""
    sleeping: tuple[float, float]
    """The same where the parent has to be woken."""


# On 2 and on 16 cores; the twins on 2.
C_PARTS = Costs(0.3e-6, 0.5e-6, (15e-6, 1e-6), (30e-6, 4e-6))
PYTHON_TWINS = Costs(2.2e-6, 2.7e-6, (60e-6, 20e-6), (60e-6, 20e-6))
COSTS = C_PARTS if (doorbell.KIND, record.KIND) == ("futex", "c") else PYTHON_TWINS


def batch_time(num_envs: int, cores: int, workers: int, step_time: float) -> float:
    """What a batch takes on so many workers, by the measurements above."""
    largest = math.ceil(num_envs / workers)
    per_batch, per_worker = COSTS.spinning if workers < cores else COSTS.sleeping
    steps = largest * (step_time + COSTS.worker_per_slot)
    return steps + per_batch + workers * per_worker


def choose(num_envs: int, cores: int, step_time: float, threads: bool) -> Placement:
    """The quicker of serial and workers, for a batch of steps of this length."""
    measured = f"a step takes {_time(step_time)}"
    if cores == 1:
        reason = f"{measured}; there is one usable core"
        return Placement("serial", 1, num_envs, reason, step_time)
    # One core may better be left to the parent, where that leaves two workers.
    counts = {enough_workers(num_envs, count) for count in {cores, max(2, cores - 1)}}
    parallel, workers = min(
        (batch_time(num_envs, cores, count, step_time), count) for count in counts
    )
    serial = num_envs * (step_time + COSTS.serial_per_slot)
    costs = (
        f"{measured}, so a batch of {num_envs} about {_time(serial)} in the caller "
        f"and {_time(parallel)} on {workers} workers"
    )
    if serial <= parallel or workers == 1:
        return Placement("serial", 1, num_envs, costs, step_time)
    if threads:
        costs += "; the env says that it releases the GIL"
    kind = "thread" if threads else "process"
    return Placement(kind, workers, num_envs, costs, step_time)


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
