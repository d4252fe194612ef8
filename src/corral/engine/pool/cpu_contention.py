"""Who wanted to run and had no core: what other programs, or the policy, took."""

from __future__ import annotations

import os
from collections.abc import Iterable

from corral.engine.faults.run_delay import run_delay


class CpuContention:
    """How long worker processes waited for a core since the pool was opened."""

    def __init__(self, pids: Iterable[int]) -> None:
        # What they waited while they were started belongs to no step.
        self._before = {pid: run_delay(pid) or 0.0 for pid in pids}

    def seconds(self, pid: int) -> float | None:
        """So far; None where the system does not say, or it is no process of its own.

        One that was replaced meanwhile counts from its own start.
        """
        if pid == os.getpid():
            return None
        now = run_delay(pid)
        return None if now is None else now - self._before.get(pid, 0.0)
