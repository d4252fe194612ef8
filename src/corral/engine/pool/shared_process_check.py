"""An env that failed in a shared process: would it have failed alone?

Some simulators keep their state in the process, so that the second env in it breaks the
first, or the first the second. What the env says then (`getJointState failed`) does not
tell. So what an env did beside others until it failed is done again elsewhere, beside
others and alone (see `fault_rerun`).

An env that could not even be built is not tried: building it may have been the harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from corral.core import Autoreset
from corral.engine.executors.contract import Assignment
from corral.engine.pool.fault_rerun import FaultRerun, OpenPool
from corral.engine.pool.slot_history import SlotHistory
from corral.engine.worker.serialization import is_pickled_by_value
from corral.errors import Fault, UsageError

RERUN_COMMANDS = ("reset", "step")
"""What is done again."""
CRASH_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
"""How native code ends that does not know its way about; others have other reasons."""
MAX_RERUNS = 3
"""Kinds of errors, in the life of a pool."""
Histories = Callable[[Fault, range], list[SlotHistory]]


ErrorKey = tuple[str, str | None, str | None]
"""A command, and what the env said to it."""


@dataclass(frozen=True, slots=True)
class SharedProcessCheck:
    """Tries whether envs of a pool failed because they share a process.

    Args:
        assignment: what they were built with.
        shards: who shares with whom.
        here: whether all of them are in one process.
        open_pool: how a pool is made, to do again what failed.
        autoreset: what happens at the end of an episode.
        tried: verdicts on what failed before. Others with the same words are taken to
            have the same reason.
    """

    assignment: Assignment
    shards: Sequence[range]
    here: bool
    open_pool: OpenPool
    autoreset: Autoreset = "same_step"
    fails_alone_by_error: dict[ErrorKey, bool | None] = field(default_factory=dict)

    def checked(
        self, faults: Sequence[Fault], histories: Histories | None = None
    ) -> list[Fault]:
        """The same faults; each says whether other envs caused it, if they may have.

        One is tried, and few in the life of a pool: whoever goes on after errors must
        not wait for each.

        Args:
            faults: of one batch.
            histories: what these slots did until that one failed, and [] if nobody
            knows.
        """
        results: list[Fault] = []
        untried = histories is not None and len(self.fails_alone_by_error) < MAX_RERUNS
        for fault in faults:
            company = self._envs_beside(fault)
            if company:
                words = (fault.command, fault.error_type, fault.error_text)
                if (
                    untried
                    and words not in self.fails_alone_by_error
                    and fault.command in RERUN_COMMANDS
                ):
                    assert histories is not None
                    self.fails_alone_by_error[words] = self._fails_alone(
                        fault, histories
                    )
                    untried = False
                alone = self.fails_alone_by_error.get(words)
                fault = replace(fault, company=company, alone=alone)
            results.append(fault)
        return results

    def with_process_size(self, fault: Fault) -> Fault:
        """A worker that crashed: how many envs were in it. It is not tried again."""
        slot = fault.slot
        if slot is None or fault.signal_name not in CRASH_SIGNALS:
            return fault
        batched = self.assignment.options.batched
        if batched or self.here or fault.command not in RERUN_COMMANDS:
            return fault
        return replace(fault, company=len(self._slots_in_process(slot)) - 1)

    def _fails_alone(self, fault: Fault, histories: Histories) -> bool | None:
        assert fault.slot is not None
        first = max(fault.slot - 1, self._slots_in_process(fault.slot).start)
        pair = range(first, first + 2)
        known = histories(fault, pair)
        if not known:
            return None
        rerun = FaultRerun(
            self.assignment, fault, pair, known, self.autoreset, self.open_pool
        )
        alone = rerun.fails_alone()
        factory = self.assignment.factories[fault.slot]
        if alone and self.here and is_pickled_by_value(factory):
            return None  # it took along what they had done to each other here
        return alone

    def _envs_beside(self, fault: Fault) -> int:
        """How many others were in its process by then, if they may be why."""
        if self.assignment.options.batched or isinstance(fault.exception, UsageError):
            return 0
        slot, building = fault.slot, fault.command == "construct"
        if slot is None or fault.kind not in ("raised", "start"):
            return 0
        if not building and fault.command not in RERUN_COMMANDS:
            return 0
        shared = self._slots_in_process(slot)
        return slot - shared.start if building else len(shared) - 1

    def _slots_in_process(self, slot: int) -> range:
        """The slots of its process."""
        if self.here:
            return range(self.shards[-1].stop)
        return next(shard for shard in self.shards if slot in shard)
