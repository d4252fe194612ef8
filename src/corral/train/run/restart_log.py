"""Reports restarts of envs and workers: a line on the console and one in a file."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from corral.engine.pool import Pool
from corral.errors import Fault
from corral.train.run.outputs import MAX_ERROR_CHARACTERS, Outputs


class RestartLog:
    """Reports the restarts in a run's pools.

    Args:
        outputs: where they are written.
        pools: returns the pools that exist by now.
    """

    def __init__(
        self, outputs: Outputs, pools: Callable[[], Iterable[Pool | None]]
    ) -> None:
        self._outputs = outputs
        self._pools = pools
        self._seen: weakref.WeakKeyDictionary[Pool, int] = weakref.WeakKeyDictionary()
        self._counted = 0
        self.count = 0
        """Number of restarts reported."""
        self.processes = 0
        """Number of these that ended a process."""

    def report_new(self, step: int) -> None:
        """Report new restarts."""
        for pool in self._pools():
            if pool is not None:
                self._report(pool, step)

    def since_last_time(self) -> int:
        """Return the number of restarts reported since the last call."""
        new, self._counted = self.count - self._counted, self.count
        return new

    def _report(self, pool: Pool, step: int) -> None:
        new = pool.fault_count - self._seen.get(pool, 0)
        if not new:
            return
        self._seen[pool] = pool.fault_count
        kept = pool.faults[-new:]
        self.count += new - len(kept)  # more than a pool remembers
        for fault in kept:
            self.count += 1
            self.processes += fault.kind != "raised"
            self._outputs.console.say(line_of(fault, self.count), "yellow")
            self._outputs.write_fault(fault, self.count, step)


def line_of(fault: Fault, count: int) -> str:
    """Return one line: what was restarted, why, and the number of restarts."""
    place = f"slot {fault.slot}" if fault.slot is not None else "all slots"
    return (
        f"Restarted   {place} of worker {fault.worker}: "
        f"{_reason(fault)[:MAX_ERROR_CHARACTERS]} "
        f"({count} so far)"
    )


def _reason(fault: Fault) -> str:
    if fault.kind == "died":
        code = f"exit code {fault.exit_code}"
        return f"its process ended in {fault.command} by {fault.signal_name or code}"
    if fault.kind == "hung":
        limit = "" if fault.limit is None else f" within {fault.limit:g} s"
        return f"no answer to {fault.command}{limit}"
    text = " ".join((fault.error_text or "").split())
    return f"{fault.error_type} in {fault.command}: {text}"
