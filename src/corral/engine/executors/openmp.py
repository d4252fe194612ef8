"""Ends OpenMP's idle helper threads before they take the workers' cores.

torch opens a parallel region for layers as small as 8 x 64, and afterwards libgomp's
helpers spin for milliseconds, waiting for the next one, on cores that the workers need
now. The next region starts them again, which costs some 0.1 ms, so they are ended only
where a batch takes much longer and there are not enough cores for all. Nothing else
changes: torch computes with as many threads as before. `benchmarks/torch_threads.py`
measures the gain.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from pathlib import Path
from time import perf_counter

# Seconds that a batch takes: several times what starting the threads again costs.
MIN_BATCH_SECONDS = 0.6e-3
# Seconds that ending them may take; beside programs that keep all cores busy it takes
# tens of milliseconds, since each helper needs a core to end.
MAX_PAUSE_SECONDS = 1e-3
# Batches until the next try.
RETRY_AFTER_BATCHES = 100
# `omp_pause_soft`: settings such as the number of threads stay.
_PAUSE_SOFT = 1


class HelperThreads:
    """The calling thread's OpenMP helpers, beside so many workers."""

    def __init__(self, workers: int, cores: int) -> None:
        self._spare = cores - workers
        self._runtimes: list[ctypes.CDLL] | None = None
        self._began = self._batch = 0.0
        self._skipping = 0
        # Whether there are any, so that it matters how long a batch takes.
        self.timed = False

    def before_batch(self) -> None:
        """The workers are about to begin: end the idle helpers."""
        if self._runtimes is None:
            # Not "torch": that is there long before its libraries are loaded.
            if "torch._C" not in sys.modules:
                return
            self._runtimes = loaded()
            self.timed = bool(self._runtimes)
        if self._skipping:
            self._skipping -= 1
        elif self._batch >= MIN_BATCH_SECONDS:
            self._release()
        self._began = perf_counter()

    def _release(self) -> None:
        began = perf_counter()
        for runtime in self._runtimes or ():
            if runtime.omp_get_max_threads() - 1 > self._spare:
                runtime.omp_pause_resource_all(_PAUSE_SOFT)
        if perf_counter() - began > MAX_PAUSE_SECONDS:
            self._skipping = RETRY_AFTER_BATCHES

    def after_batch(self) -> None:
        """The batch is here."""
        self._batch = perf_counter() - self._began


def loaded() -> list[ctypes.CDLL]:
    """Every GNU OpenMP in this process that can end its helpers."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:  # not Linux
        return []
    # Address, rights, offset, device, inode, and the path, which may have spaces.
    mapped = {line.split(maxsplit=5)[-1] for line in lines if "libgomp" in line}
    found = []
    for path in sorted(mapped):
        with suppress(OSError):  # removed since
            found.append(ctypes.CDLL(path))
    return [one for one in found if hasattr(one, "omp_pause_resource_all")]  # 5.0
