"""Restarts of a run's envs, workers and sites: reported at once, and counted."""

from __future__ import annotations

from corral.engine.pool import Pool
from corral.errors import Fault
from corral.train.run.checkpoint import Progress
from corral.train.run.outputs import Outputs


class Restarts:
    """Reports and counts the restarts of the pools that it watches.

    Args:
        outputs: print and write each restart.
        progress: how far the run has come.

    Attributes:
        count: Restarts so far.
        lost_processes: Those of them that ended a process.
    """

    def __init__(self, outputs: Outputs, progress: Progress) -> None:
        self.count = self.lost_processes = 0
        self._outputs, self._progress = outputs, progress
        # Restarts that `take_new` has returned.
        self._taken = 0

    def watch(self, pool: Pool) -> None:
        """Report every restart of a pool at once: an update may take minutes."""
        pool.call_on_restart(self._add)
        for fault in pool.faults:
            self._add(fault)

    def take_new(self) -> int:
        """Return the number of restarts since the last call."""
        new, self._taken = self.count - self._taken, self.count
        return new

    def _add(self, fault: Fault) -> None:
        self.count += 1
        self.lost_processes += fault.kind != "raised"
        self._outputs.write_fault(fault, self.count, self._progress.steps)
