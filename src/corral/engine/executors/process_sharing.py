"""Envs share a process only where that is known to be safe. How it comes to be known.

the env says so              metadata, or `corral doctor --save`
it was seen before           `remembered`
it is tried now              two envs in a worker, held against one alone

worker 0   try, one env alone, then two together   ── the same? safe
another    the first env alone, in a new process   ── the same as the first time?
                                                      then they disturb each other
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace

from corral.engine.executors.assign import shards
from corral.engine.executors.contract import Assignment
from corral.engine.executors.env_kinds import guests_of
from corral.engine.executors.isolation_cache import Key, key_of, recall, remember
from corral.engine.executors.process import ProcessExecutor
from corral.engine.worker.isolation_probe import Sharing
from corral.engine.worker.probe import Measurement, Question
from corral.errors import FactoryError, Fault, FaultError, WorkerDied

NO_REPEAT = (
    "an env does not do the same twice under equal seeds, so whether two disturb each "
    "other cannot be seen"
)
TOO_MANY = "the factories are of too many kinds to try them all"
UNSENT = "the factory cannot be sent to a worker process to be tried"


@dataclass(slots=True)
class Look:
    """What is found out about the envs of an executor, with its first workers.

    Args:
        executor: launched, and nothing built.
        guests: slots whose envs are tried; see `kinds`.
        question: what is asked.
    """

    executor: ProcessExecutor
    guests: list[int]
    question: Question
    used: set[int] = field(default_factory=set)
    """Workers in which envs have been."""
    _stage: str = ""
    _extra: int = 0
    _trouble: str = ""
    _mild: bool = False

    def measured(self) -> Measurement:
        """What came of it. What an env raises in its first constructor is raised."""
        found, doubt = self._tried(0, self.question)
        if doubt is None or found.sharing is None:
            return found
        witness = self._another()
        if self._repeats(witness, doubt):
            reason = self._trouble
            return self._with(found, replace(found.sharing, safe=False, reason=reason))
        if self._mild:
            return found
        if self.question.seeded or not found.sharing.safe:
            return self._with(
                found, replace(found.sharing, safe=None, reason=NO_REPEAT)
            )
        # Bare resets may draw from the system's entropy; with seeds it may repeat.
        seeded, doubt = self._tried(witness, replace(self.question, seeded=True))
        if doubt is None:
            return self._with(found, seeded.sharing)
        return self._with(found, replace(found.sharing, safe=None, reason=NO_REPEAT))

    def _with(self, found: Measurement, sharing: Sharing | None) -> Measurement:
        assert sharing is not None
        return replace(found, sharing=replace(sharing, extra=self._extra))

    def _tried(
        self, worker: int, question: Question
    ) -> tuple[Measurement, bytes | None]:
        self.used.add(worker)
        self._stage = ""
        try:
            answer = self.executor.try_envs(
                worker, self.guests, question, self._reached
            )
        except TimeoutError:
            reason = f"it cannot be found out in {question.limit:g} s"
            return self._given_up(None, reason), None
        except WorkerDied as error:
            if not self._stage:
                raise
            _say_what_crashed(error.fault)
            how = error.fault.signal_name or f"exit code {error.fault.exit_code}"
            if self._stage == "alone":
                reason = f"the process that two of them were tried in ended ({how})"
                return self._given_up(False, reason), None
            reason = f"an env's process ended in a trial run ({how})"
            return self._given_up(None, reason), None
        except FaultError as error:
            if not self._stage:
                raise
            what = f"{error.fault.error_type}: {error.fault.error_text!s:.120}"
            return self._given_up(None, f"an env failed in a trial run ({what})"), None
        measured = answer.measured
        if measured.sharing is not None:
            self._extra += measured.sharing.extra
            counted = replace(measured.sharing, extra=self._extra)
            measured = replace(measured, sharing=counted)
        self._trouble, self._mild = answer.trouble, answer.in_infos_alone
        return measured, answer.doubt

    def _reached(self, stage: str) -> None:
        self._stage = stage

    def _given_up(self, safe: bool | None, reason: str) -> Measurement:
        self._extra += 1 if self._stage == "built" else 3
        return Measurement(0.0, sharing=Sharing(safe, reason, self._extra))

    def _another(self) -> int:
        """A worker that has not seen any env."""
        if len(self.executor.shards) > 1:
            return 1
        self.executor.renew(0)
        return 0

    def _repeats(self, worker: int, doubt: bytes) -> bool:
        self.used.add(worker)
        limit = self.question.limit
        self._extra += len(self.guests) > 1
        try:
            return self.executor.repeat(worker, self.guests, doubt, limit)
        except (TimeoutError, FaultError) as error:
            if isinstance(error, WorkerDied):
                _say_what_crashed(error.fault)
            if len(self.executor.shards) > 1:
                self.executor.renew(worker)
            return False

    def clean(self, found: Measurement) -> None:
        """Replace the workers that envs have left something in, or may have."""
        safe = found.sharing is None or found.sharing.safe
        # The witness has the generators of slot 0.
        good = {0} if found.kept or (safe and not found.left) else set()
        for worker in self.used - good:
            self.executor.renew(worker)


def _say_what_crashed(fault: Fault) -> None:
    """After what a process that crashed has printed: that it was not the pool's."""
    if fault.kind != "died" or not fault.output.strip() or sys.stderr is None:
        return
    how = fault.signal_name or f"exit code {fault.exit_code}"
    sys.stderr.write(
        f"corral: pid {fault.pid}, which ended by {how}, ran a trial: before a pool "
        "is built, two of its envs are tried in one process. The pool itself is not "
        "affected; its `layout` says what follows.\n"
    )


@dataclass(slots=True)
class Inquiry:
    """Whether the envs of an assignment may share a process."""

    assignment: Assignment
    guests: list[int] = field(init=False)
    key: Key | None = field(init=False)

    def __post_init__(self) -> None:
        self.guests = guests_of(self.assignment.factories)
        self.key = key_of(self.assignment, self.guests) if self.guests else None

    def known(self) -> Sharing | None:
        """Without building anything; None if it has to be tried."""
        if not self.guests:
            return Sharing(None, TOO_MANY)
        if self.key is None:
            return Sharing(None, UNSENT)
        return recall(self.key)

    def keep(self, sharing: Sharing | None) -> None:
        """For the next time; what an env says, it will say again."""
        if self.key is not None and sharing is not None and sharing.seen:
            remember(self.key, sharing)

    def found(self, question: Question) -> Sharing:
        """Tried in a process of its own, which ends."""
        known = self.known()
        if known is not None:
            return known
        slots = self.assignment.slots
        alone = replace(self.assignment, shards=shards(slots, 1))
        try:
            executor = ProcessExecutor(alone)
        except FactoryError:
            return Sharing(None, UNSENT)
        try:
            executor.launch()
            sharing = Look(executor, self.guests, question).measured().sharing
        except FaultError as error:  # here it may be built all the same
            _say_what_crashed(error.fault)
            sharing = Sharing(None, f"an env could not be tried ({error.fault.kind})")
        finally:
            executor.close(2.0)
        assert sharing is not None
        self.keep(sharing)
        return sharing
