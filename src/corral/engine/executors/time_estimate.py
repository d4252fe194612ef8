"""How long a batch of steps would take: in the caller, on processes, on threads.

    in the caller   slots × step
    on workers      the larger of   largest shard × step        the slowest worker
                                    slots × computing / cores   cores are shared
                    and what waking so many workers costs
    on threads      the same, with steps that queue for the GIL

Pure arithmetic on the measurements of a probe; the constants were measured as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from corral.engine.worker import compiled
from corral.engine.worker.probe import Measurement


@dataclass(frozen=True, slots=True)
class BatchOverhead:
    """Seconds that a batch takes on top of the env steps, as measured."""

    serial_per_slot: float
    worker_per_slot: float
    spinning: tuple[float, float]
    """Per batch and per worker, with a core left for the parent, which then spins."""
    sleeping: tuple[float, float]
    """The same where the parent has to be woken."""
    crowded: tuple[float, float]
    """The same with more workers than cores, each of which has to be woken."""
    threads: float
    """What a batch takes longer on threads, which pass the GIL around."""


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


def serial_time(num_envs: int, measured: Measurement) -> float:
    """Seconds of a batch in the caller."""
    return num_envs * (measured.step_time + OVERHEAD.serial_per_slot)


def process_time(
    num_envs: int, cores: int, workers: int, measured: Measurement
) -> float:
    """Seconds of a batch on this number of processes."""
    return _worker_time(num_envs, cores, workers, measured, measured.step_time)


def thread_time(
    num_envs: int, cores: int, workers: int, measured: Measurement
) -> float:
    """Seconds of a batch on this number of threads."""
    step_time = measured.step_time * stretch(workers, gil_share(measured))
    batch = _worker_time(num_envs, cores, workers, measured, step_time)
    return batch + OVERHEAD.threads


def _worker_time(
    num_envs: int, cores: int, workers: int, measured: Measurement, step_time: float
) -> float:
    largest = math.ceil(num_envs / workers)
    slowest = largest * (step_time + OVERHEAD.worker_per_slot)
    computing = num_envs * measured.computing * measured.step_time / cores
    if workers < cores:
        per_batch, per_worker = OVERHEAD.spinning
    else:
        per_batch, per_worker = (
            OVERHEAD.crowded if workers > cores else OVERHEAD.sleeping
        )
    return max(slowest, computing) + per_batch + workers * per_worker


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
