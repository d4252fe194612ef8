"""Envs share a process only where that is known to be safe. How it comes to be known.

the env says so              metadata, or `corral doctor --save`
it was seen before           `isolation_cache`
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
from corral.engine.executors.env_kinds import slots_to_probe
from corral.engine.executors.isolation_cache import (
    CacheKey,
    cache_key_of,
    read_cached,
    write_cached,
)
from corral.engine.executors.process import ProcessExecutor
from corral.engine.worker.commands import ProbeRequest
from corral.engine.worker.isolation_probe import SharingAnswer
from corral.engine.worker.probe import Measurement
from corral.errors import FactoryError, Fault, FaultError, WorkerDied

NOT_REPEATABLE_REASON = (
    "an env does not do the same twice under equal seeds, so whether two disturb each "
    "other cannot be seen"
)
TOO_MANY_KINDS_REASON = "the factories are of too many kinds to try them all"
UNSENDABLE_REASON = "the factory cannot be sent to a worker process to be tried"


@dataclass(slots=True)
class SharingProbe:
    """What is found out about the envs of an executor, with its first workers.

    Args:
        executor: launched, and nothing built.
        guests: slots whose envs are tried; see `kinds`.
        question: what is asked.
    """

    executor: ProcessExecutor
    slots: list[int]
    question: ProbeRequest
    used: set[int] = field(default_factory=set)
    """Workers in which envs have been."""
    _stage: str = ""
    _extra: int = 0
    _trouble: str = ""
    _mild: bool = False

    def measure(self) -> Measurement:
        """What came of it. What an env raises in its first constructor is raised."""
        found, doubt = self._probe(0, self.question)
        if doubt is None or found.sharing is None:
            return found
        fresh = self._fresh_worker()
        if self._repeats(fresh, doubt):
            reason = self._trouble
            return self._with(found, replace(found.sharing, safe=False, reason=reason))
        if self._mild:
            return found
        if self.question.seeded or not found.sharing.safe:
            return self._with(
                found, replace(found.sharing, safe=None, reason=NOT_REPEATABLE_REASON)
            )
        # Bare resets may draw from the system's entropy; with seeds it may repeat.
        seeded, doubt = self._probe(fresh, replace(self.question, seeded=True))
        if doubt is None:
            return self._with(found, seeded.sharing)
        return self._with(
            found, replace(found.sharing, safe=None, reason=NOT_REPEATABLE_REASON)
        )

    def _with(self, found: Measurement, sharing: SharingAnswer | None) -> Measurement:
        assert sharing is not None
        return replace(found, sharing=replace(sharing, extra=self._extra))

    def _probe(
        self, worker: int, question: ProbeRequest
    ) -> tuple[Measurement, bytes | None]:
        self.used.add(worker)
        self._stage = ""
        try:
            answer = self.executor.probe_envs(
                worker, self.slots, question, self._reached
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
        return Measurement(0.0, sharing=SharingAnswer(safe, reason, self._extra))

    def _fresh_worker(self) -> int:
        """A worker that has not seen any env."""
        if len(self.executor.shards) > 1:
            return 1
        self.executor.respawn(0)
        return 0

    def _repeats(self, worker: int, doubt: bytes) -> bool:
        self.used.add(worker)
        limit = self.question.limit
        self._extra += len(self.slots) > 1
        try:
            return self.executor.repeats_recording(worker, self.slots, doubt, limit)
        except (TimeoutError, FaultError) as error:
            if isinstance(error, WorkerDied):
                _say_what_crashed(error.fault)
            # Its answer may still come, and would be taken for the next one.
            self.executor.respawn(worker)
            return False

    def clean(self, found: Measurement) -> None:
        """Replace the workers that envs have left something in, or may have."""
        safe = found.sharing is None or found.sharing.safe
        # The fresh worker has the generators of slot 0.
        good = {0} if found.kept or (safe and not found.left) else set()
        for worker in self.used - good:
            self.executor.respawn(worker)


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
class SharingQuestion:
    """Whether the envs of an assignment may share a process."""

    assignment: Assignment
    probe_slots: list[int] = field(init=False)
    key: CacheKey | None = field(init=False)

    def __post_init__(self) -> None:
        self.probe_slots = slots_to_probe(self.assignment.factories)
        self.key = (
            cache_key_of(self.assignment, self.probe_slots)
            if self.probe_slots
            else None
        )

    def known_answer(self) -> SharingAnswer | None:
        """Without building anything; None if it has to be tried."""
        if not self.probe_slots:
            return SharingAnswer(None, TOO_MANY_KINDS_REASON)
        if self.key is None:
            return SharingAnswer(None, UNSENDABLE_REASON)
        return read_cached(self.key)

    def store(self, sharing: SharingAnswer | None) -> None:
        """For the next time; what an env says, it will say again."""
        if self.key is not None and sharing is not None and sharing.seen:
            write_cached(self.key, sharing)

    def answer(self, question: ProbeRequest) -> SharingAnswer:
        """Tried in a process of its own, which ends."""
        known = self.known_answer()
        if known is not None:
            return known
        sharing = try_sharing(self.assignment, self.probe_slots, question)
        self.store(sharing)
        return sharing


def try_sharing(
    assignment: Assignment, probe_slots: list[int], question: ProbeRequest
) -> SharingAnswer:
    """Try the envs of these slots in a process that ends; nothing is looked up."""
    alone = replace(assignment, shards=shards(assignment.slots, 1))
    try:
        executor = ProcessExecutor(alone)
    except FactoryError:
        return SharingAnswer(None, UNSENDABLE_REASON)
    try:
        executor.launch()
        sharing = SharingProbe(executor, probe_slots, question).measure().sharing
    except FaultError as error:  # here it may be built all the same
        _say_what_crashed(error.fault)
        return SharingAnswer(None, f"an env could not be tried ({error.fault.kind})")
    finally:
        executor.close(2.0)
    assert sharing is not None
    return sharing
