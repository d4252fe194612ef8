"""The worker processes, as whoever looks at `envs.processes` expects them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from corral.engine.pool import Pool


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """One process, with its share of the slots."""

    pid: int
    slots: range

    def is_alive(self) -> bool:
        """Whether it is still there."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


def processes_of(pool: Pool) -> list[WorkerProcess]:
    """One for each worker process; none where the caller runs the envs."""
    ourselves = os.getpid()
    return [
        WorkerProcess(worker.pid, worker.slots)
        for worker in pool.stats().workers
        if worker.pid not in (None, ourselves)
    ]
