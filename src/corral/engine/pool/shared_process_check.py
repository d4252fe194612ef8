"""An env that failed in company: would it have failed alone?

Some simulators keep their state in the process, so that the second env in it breaks the
first, or the first the second. What the env says then (`getJointState failed`) does not
tell. So what an env did beside others until it failed is done again elsewhere, with and
without company (see `retrial`).

An env that could not even be built is not tried: building it may have been the harm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from corral.core import Autoreset
from corral.engine.executors.contract import Assignment
from corral.engine.pool.fault_rerun import OpenPool, Retrial
from corral.engine.pool.slot_history import Script
from corral.engine.worker.serialization import travels_itself
from corral.errors import Fault, UsageError

TRIED = ("reset", "step")
"""What is done again."""
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
"""How native code ends that does not know its way about; others have other reasons."""
MOST_TRIED = 3
"""Kinds of errors, in the life of a pool."""
Scripts = Callable[[Fault, range], list[Script]]


Words = tuple[str, str | None, str | None]
"""A command, and what the env said to it."""


@dataclass(frozen=True, slots=True)
class Company:
    """The envs of a pool, as company for each other.

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
    tried: dict[Words, bool | None] = field(default_factory=dict)

    def judged(
        self, faults: Sequence[Fault], scripts: Scripts | None = None
    ) -> list[Fault]:
        """The same faults; those that may be the company's say whether they are.

        One is tried, and few in the life of a pool: whoever goes on after errors must
        not wait for each.

        Args:
            faults: of one batch.
            scripts: what these slots did until that one failed, and [] if nobody knows.
        """
        told: list[Fault] = []
        untried = scripts is not None and len(self.tried) < MOST_TRIED
        for fault in faults:
            company = self._beside(fault)
            if company:
                words = (fault.command, fault.error_type, fault.error_text)
                if untried and words not in self.tried and fault.command in TRIED:
                    assert scripts is not None
                    self.tried[words] = self._fails_alone(fault, scripts)
                    untried = False
                alone = self.tried.get(words)
                fault = replace(fault, company=company, alone=alone)
            told.append(fault)
        return told

    def suspected(self, fault: Fault) -> Fault:
        """A worker that crashed: how many envs were in it. It is not tried again."""
        slot = fault.slot
        if slot is None or fault.signal_name not in CRASHES:
            return fault
        batched = self.assignment.options.batched
        if batched or self.here or fault.command not in TRIED:
            return fault
        return replace(fault, company=len(self._sharing(slot)) - 1)

    def _fails_alone(self, fault: Fault, scripts: Scripts) -> bool | None:
        assert fault.slot is not None
        first = max(fault.slot - 1, self._sharing(fault.slot).start)
        pair = range(first, first + 2)
        known = scripts(fault, pair)
        if not known:
            return None
        retrial = Retrial(
            self.assignment, fault, pair, known, self.autoreset, self.open_pool
        )
        alone = retrial.fails_alone()
        factory = self.assignment.factories[fault.slot]
        if alone and self.here and travels_itself(factory):
            return None  # it took along what they had done to each other here
        return alone

    def _beside(self, fault: Fault) -> int:
        """How many others were in its process by then, if they may be why."""
        if self.assignment.options.batched or isinstance(fault.exception, UsageError):
            return 0
        slot, building = fault.slot, fault.command == "construct"
        if slot is None or fault.kind not in ("raised", "start"):
            return 0
        if not building and fault.command not in TRIED:
            return 0
        shared = self._sharing(slot)
        return slot - shared.start if building else len(shared) - 1

    def _sharing(self, slot: int) -> range:
        """The slots of its process."""
        if self.here:
            return range(self.shards[-1].stop)
        return next(shard for shard in self.shards if slot in shard)
