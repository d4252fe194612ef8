"""Envs share a process only where that is known to be safe. Where it is known from:

the env says so              metadata, or `corral doctor --save`
an earlier trial             `isolation_cache`
a trial now                  two envs in a worker, compared with one alone

worker 0   one env alone, then two together        ── the same? safe
another    the first env alone, in a new process   ── the same as the first time?
                                                      then they disturb each other
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial

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


class SharingProbe:
    """Finds out about the envs of an executor, with its first workers.

    Args:
        executor: nothing is built in it yet.
        slots: the probe builds their envs; see `env_kinds`.
        question: what to find out.
    """

    def __init__(
        self, executor: ProcessExecutor, slots: list[int], question: ProbeRequest
    ) -> None:
        self.executor = executor
        self.slots = slots
        self.question = question
        self._used: set[int] = set()
        """Workers that have built envs."""
        self._stage = ""
        self._extra = 0
        self._trouble = ""
        self._mild = False

    def measure(self) -> Measurement:
        """Run the probe; raises what an env raises in its first constructor."""
        self.executor.launch()
        found, doubt = self._probe(0, self.question)
        sharing = found.sharing
        if doubt is None or sharing is None:
            return found
        fresh = self._fresh_worker()
        if self._repeats(fresh, doubt):
            sharing = replace(sharing, safe=False, reason=self._trouble)
        elif self._mild:
            return found
        else:
            seeded = None
            if sharing.safe and not self.question.seeded:
                # Bare resets may draw from the system's entropy; seeded ones repeat.
                again, doubt = self._probe(fresh, replace(self.question, seeded=True))
                seeded = again.sharing if doubt is None else None
            unknown = replace(sharing, safe=None, reason=NOT_REPEATABLE_REASON)
            sharing = seeded or unknown
        return replace(found, sharing=replace(sharing, extra=self._extra))

    def _probe(
        self, worker: int, question: ProbeRequest
    ) -> tuple[Measurement, bytes | None]:
        self._used.add(worker)
        self._stage = ""
        try:
            answer = self.executor.probe_envs(
                worker, self.slots, question, partial(setattr, self, "_stage")
            )
        except TimeoutError:
            return self._given_up(f"it cannot be found out in {question.limit:g} s")
        except FaultError as error:
            if not self._stage:
                raise
            return self._given_up(*_why_given_up(error, self._stage))
        measured = answer.measured
        if measured.sharing is not None:
            self._extra += measured.sharing.extra
            counted = replace(measured.sharing, extra=self._extra)
            measured = replace(measured, sharing=counted)
        self._trouble, self._mild = answer.trouble, answer.in_infos_alone
        return measured, answer.doubt

    def _given_up(
        self, reason: str, safe: bool | None = None
    ) -> tuple[Measurement, None]:
        self._extra += 1 if self._stage == "built" else 3
        sharing = SharingAnswer(safe, reason, self._extra)
        return Measurement(0.0, sharing=sharing), None

    def _fresh_worker(self) -> int:
        """A worker that has not built any env."""
        if len(self.executor.shards) > 1:
            return 1
        self.executor.respawn(0)
        return 0

    def _repeats(self, worker: int, doubt: bytes) -> bool:
        self._used.add(worker)
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
        for worker in self._used - good:
            self.executor.respawn(worker)


def _why_given_up(error: FaultError, stage: str) -> tuple[str, bool | None]:
    """Why a probe ended early, and whether that says that envs may not share."""
    fault = error.fault
    if not isinstance(error, WorkerDied):
        what = f"{fault.error_type}: {fault.error_text!s:.120}"
        return f"an env failed in a trial run ({what})", None
    _say_what_crashed(fault)
    how = fault.signal_name or f"exit code {fault.exit_code}"
    if stage == "alone":
        return f"the process that two of them were tried in ended ({how})", False
    return f"an env's process ended in a trial run ({how})", None


def _say_what_crashed(fault: Fault) -> None:
    """Print, after the output of a process that crashed, that it was a trial."""
    if fault.kind != "died" or not fault.output.strip() or sys.stderr is None:
        return
    how = fault.signal_name or f"exit code {fault.exit_code}"
    sys.stderr.write(
        f"corral: pid {fault.pid}, which ended by {how}, ran a trial: before a pool "
        "is built, two of its envs are tried in one process. The pool itself is not "
        "affected; its `layout` says what follows.\n"
    )


class SharingQuestion:
    """Whether the envs of an assignment may share a process."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.probe_slots = slots_to_probe(assignment.factories)
        self._key: CacheKey | None = None
        if self.probe_slots:
            self._key = cache_key_of(assignment, self.probe_slots)

    def known_answer(self) -> SharingAnswer | None:
        """The answer without building anything; None if envs have to be tried."""
        if not self.probe_slots:
            return SharingAnswer(None, TOO_MANY_KINDS_REASON)
        if self._key is None:
            return SharingAnswer(None, UNSENDABLE_REASON)
        return read_cached(self._key)

    def store(self, sharing: SharingAnswer | None) -> None:
        """Keep the answer, unless the env itself declares it."""
        if self._key is not None and sharing is not None and sharing.seen:
            write_cached(self._key, sharing)

    def answer(self, question: ProbeRequest) -> SharingAnswer:
        """The answer, from a trial in another process where it is not known."""
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
        sharing = SharingProbe(executor, probe_slots, question).measure().sharing
    except FaultError as error:  # here it may be built all the same
        _say_what_crashed(error.fault)
        return SharingAnswer(None, f"an env could not be tried ({error.fault.kind})")
    finally:
        executor.close(2.0)
    assert sharing is not None
    return sharing
