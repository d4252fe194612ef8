"""Envs share a process only where that is known to be safe. Where it is known from:

the env says so              metadata, or `corral doctor --save`
an earlier trial             `isolation_cache`
a trial now                  two envs in a worker, compared with one alone

worker 0   one env alone, then two together        ── the same? safe
another    the first env alone, in a new process   ── the same as the first time?
                                                      then they disturb each other
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import cloudpickle
import numpy as np

from corral.core import Factory
from corral.engine.executors.assign import shards
from corral.engine.executors.contract import Assignment
from corral.engine.executors.isolation_cache import (
    cache_key_of,
    read_cached,
    write_cached,
)
from corral.engine.executors.process import ProcessExecutor
from corral.engine.faults.report import error_for
from corral.engine.transport.mailbox import MailboxTimeout
from corral.engine.worker.commands import ProbeRequest
from corral.engine.worker.isolation_probe import SharingAnswer
from corral.engine.worker.probe import Measurement
from corral.errors import CorralError, FactoryError, Fault, FaultError, WorkerDied

NOT_REPEATABLE_REASON = (
    "an env does not do the same twice under equal seeds, so whether two disturb each "
    "other cannot be seen"
)
TOO_MANY_KINDS_REASON = "the factories are of too many kinds to try them all"
# Each kind is tried with two envs; with more kinds there is no trial.
MAX_KINDS = 3
UNSENDABLE_REASON = "the factory cannot be sent to a worker process to be tried"


@dataclass
class SharingProbe:
    """Finds out about the envs of an executor, with its first workers.

    Args:
        executor: nothing is built in it yet.
        slots: the probe builds their envs; see `slots_to_probe`.
        question: what to find out.
    """

    executor: ProcessExecutor
    slots: list[int]
    question: ProbeRequest
    # Workers that have built envs.
    _used: set[int] = field(default_factory=set)
    _stage: str = ""
    _extra: int = 0

    def measure(self) -> Measurement:
        """Run the probe; raises what an env raises in its first constructor."""
        self.executor.launch()
        found = judged = self._probe(0, self.question)
        if found.doubt is None or found.sharing is None:
            return found
        if found.sharing.safe and not self.question.seeded:
            # Bare resets may draw from the system's entropy: two agree or differ by
            # chance. Seeded ones repeat.
            judged = self._probe(self._fresh(), replace(self.question, seeded=True))
        sharing = self._judged(judged) or found.sharing
        return replace(found, sharing=replace(sharing, extra=self._extra))

    def _judged(self, found: Measurement) -> SharingAnswer | None:
        """The answer; where envs differed, another process says whether by chance."""
        sharing, doubt = found.sharing, found.doubt
        if sharing is None or doubt is None:
            return sharing
        if self._repeats(self._fresh(), doubt.packed):
            return replace(sharing, safe=False, reason=doubt.reason)
        if doubt.in_infos_alone:
            return sharing
        return replace(sharing, safe=None, reason=NOT_REPEATABLE_REASON)

    def _fresh(self) -> int:
        """A worker that has built nothing."""
        worker = min(1, len(self.executor.shards) - 1)
        if worker in self._used:
            self.executor.respawn(worker)
        return worker

    def _probe(self, worker: int, question: ProbeRequest) -> Measurement:
        self._used.add(worker)
        self._stage = ""
        try:
            measured: Measurement = self.executor.probe_envs(
                worker, self.slots, question, partial(setattr, self, "_stage")
            )
        except MailboxTimeout:
            return self._given_up(f"it cannot be found out in {question.limit:g} s")
        except FaultError as error:
            if not self._stage:
                raise self._of_first_env(error) from error.__cause__
            return self._given_up(*_why_given_up(error, self._stage))
        if measured.sharing is not None:
            self._extra += measured.sharing.extra
        return measured

    def _of_first_env(self, error: FaultError) -> CorralError:
        """The error of the first constructor, with its slot."""
        fault = error.fault
        if fault.command != "construct" or fault.slot is not None:
            return error
        return error_for(replace(fault, slot=self.slots[0]))

    def _given_up(self, reason: str, safe: bool | None = None) -> Measurement:
        self._extra += 1 if self._stage == "built" else 3
        sharing = SharingAnswer(safe, reason, self._extra)
        return Measurement(0.0, sharing=sharing)

    def _repeats(self, worker: int, recorded: bytes) -> bool:
        self._used.add(worker)
        self._extra += len(self.slots) > 1
        untimed = replace(self.question, seconds=0.0)
        try:
            return bool(
                self.executor.probe_envs(worker, self.slots, untimed, recorded=recorded)
            )
        except (MailboxTimeout, FaultError) as error:
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
    if stage == "alone":
        what = "the process that two of them were tried in ended"
        return f"{what} ({_how_ended(fault)})", False
    return f"an env's process ended in a trial run ({_how_ended(fault)})", None


def _how_ended(fault: Fault) -> str:
    return fault.signal_name or f"exit code {fault.exit_code}"


def _say_what_crashed(fault: Fault) -> None:
    """Print, after the output of a process that crashed, that it was a trial."""
    if fault.kind == "died" and fault.output.strip() and sys.stderr is not None:
        sys.stderr.write(
            f"corral: pid {fault.pid} ended by {_how_ended(fault)} in a trial. Before "
            "a pool is built, two of its envs are tried in one process; this does not "
            "end the pool, and its `layout` says where its envs run.\n"
        )


# Kinds of envs ------------------------------------------------------------------------


def slots_to_probe(factories: Sequence[Factory]) -> list[int]:
    """Slots whose envs are tried together: two of each kind; none if too many kinds.

    Factories are of one kind if they differ in numbers alone: a rank, a seed, a port.
    All other arguments (ids, classes, paths, options) must be equal.
    """
    different = {id(factory): factory for factory in factories}
    shapes = {key: _shape(factory) for key, factory in different.items()}
    kinds: dict[Any, list[int]] = {}
    for slot, factory in enumerate(factories):
        kinds.setdefault(shapes[id(factory)], []).append(slot)
    tried = kinds.values() if len(kinds) <= MAX_KINDS else ()
    return [slot for slots in tried for slot in slots[:2]]


class _ShapePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves out numbers."""

    def persistent_id(self, value: Any) -> str | None:
        is_number = isinstance(value, (int, float, np.number))
        return "a number" if is_number and not isinstance(value, bool) else None


def _shape(factory: Factory) -> Any:
    """Equal for factories that differ in numbers alone."""
    packed = io.BytesIO()
    try:
        _ShapePickler(packed).dump(factory)
    except Exception:  # it cannot be pickled, so it is equal to itself alone
        return id(factory)
    return packed.getvalue()


class SharingQuestion:
    """Whether the envs of an assignment may share a process."""

    def __init__(self, assignment: Assignment) -> None:
        self.probe_slots = slots = slots_to_probe(assignment.factories)
        self._key = cache_key_of(assignment, slots) if slots else None

    def known_answer(self) -> SharingAnswer | None:
        """The answer without building anything; None if envs have to be tried."""
        if not self.probe_slots:
            return SharingAnswer(None, TOO_MANY_KINDS_REASON)
        if self._key is None:
            return SharingAnswer(None, UNSENDABLE_REASON)
        return read_cached(self._key)

    def store(self, sharing: SharingAnswer) -> SharingAnswer:
        """Keep the answer of a trial, unless the env itself declares it."""
        if self._key is not None and sharing.seen:
            write_cached(self._key, sharing)
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
