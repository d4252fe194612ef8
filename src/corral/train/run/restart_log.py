"""Restarts of envs and workers, told as they come: a line each, and a row in a file."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

from corral.engine.pool import Pool
from corral.errors import Fault
from corral.train.run.outputs import MAX_ERROR_CHARACTERS, Outputs


class RestartLog:
    """Reports what the pools of a run have restarted.

    Args:
        outputs: where to.
        pools: those that there are by now.
    """

    def __init__(
        self, outputs: Outputs, pools: Callable[[], Iterable[Pool | None]]
    ) -> None:
        self._outputs = outputs
        self._pools = pools
        self._seen: weakref.WeakKeyDictionary[Pool, int] = weakref.WeakKeyDictionary()
        self._counted = 0
        self.count = 0
        """How many were told."""
        self.processes = 0
        """Those of them that took a process along."""

    def report_new(self, step: int) -> None:
        """Tell the new ones."""
        for pool in self._pools():
            if pool is not None:
                self._report(pool, step)

    def since_last_time(self) -> int:
        """How many were told since this was asked last."""
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
    """One restart in one line: what was restarted, why, and how many there were."""
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
