"""The delivery makes a Step of what workers wrote: rows of the block, and letters."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.executors.contract import Executor
from corral.engine.faults.report import one_error_for
from corral.engine.layout.codec import Codec
from corral.engine.layout.entries import Column
from corral.engine.layout.plan import DataViews
from corral.engine.pool.episode_requests import Told
from corral.engine.pool.fault_details import Witness
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.ledger import Ledger
from corral.engine.pool.recovery import Mender
from corral.engine.pool.rows import NO_INFOS, Row, gather
from corral.engine.pool.shared_process_check import Company
from corral.engine.pool.stale_views import Loans
from corral.engine.worker import commands
from corral.engine.worker.letters import Letter
from corral.errors import Fault, WorkerDied, WorkerHung


@dataclass(slots=True, eq=False, repr=False)
class Delivery:
    """Results of slots that have been taken, in the ledger's eyes.

    A fault of one of them is raised, with the results of the others.
    """

    codec: Codec
    views: DataViews
    rows: tuple[Row, Row]
    """The block's rows, all slots of them."""
    executor: Executor
    ledger: Ledger
    inbox: Inbox
    loans: Loans
    told: Told
    witness: Witness
    company: Company | None
    """Who tells whether company is to blame for a fault, if that is of interest."""
    mender: Mender | None
    same_step: bool
    """Whether a step may have told of an end and of a beginning."""

    def all(self, letters: Sequence[Letter], copy: bool, debug: bool) -> Step:
        """Every slot, all on the same row; with `debug` views are called back."""
        ledger, inbox = self.ledger, self.inbox
        row = ledger.base & 1
        if letters or inbox.letters:
            self._open(letters, ledger.all)
        infos = NO_INFOS
        if self.executor.informed() or inbox.letters:
            infos, new = inbox.infos(ledger.all, row, whole=True)
            self._announce(new)
        step = self.rows[row].step(infos, copy or debug)
        if self.same_step and step.started.any():
            self._announce(inbox.take_finals(step))
        if inbox.letters or inbox.always:
            inbox.complete(step)
        if debug and not copy:
            self.loans.lend(step, ledger.tickets(ledger.all) & 1)
        if self.mender is not None or self.told.assigned:
            self._took(ledger.all, step.started)
        return step

    def some(
        self,
        slots: NDArray[np.intp],
        letters: Sequence[Letter],
        copy: bool,
        debug: bool,
    ) -> Step:
        """Some slots, or slots on different rows."""
        self._open(letters, slots)
        return self._part(slots, copy, debug)

    def faults(self, slots: NDArray[np.intp]) -> list[Fault]:
        """What went wrong in these slots, which want a reset before their next step."""
        faults = [self.witness.raised(fault) for fault in self.inbox.faults(slots)]
        if faults:
            failed = np.array([fault.slot for fault in faults])
            self.ledger.start(failed, started=False)
        return faults

    def without(self, slots: NDArray[np.intp], faults: list[Fault]) -> Step | None:
        """The results of those slots that were fine."""
        failed = np.array([fault.slot for fault in faults], np.intp)
        fine = slots[~np.isin(slots, failed)]
        return self._part(fine, copy=True) if len(fine) else None

    def _part(self, slots: NDArray[np.intp], copy: bool, debug: bool = False) -> Step:
        """The results of some slots, whose letters are open."""
        rows = self.ledger.tickets(slots) & 1
        infos, new = self.inbox.infos(slots, rows, whole=False)
        self._announce(new)
        part = None if copy else self._whole_shard(slots, rows)
        if part is None:
            step = gather(self.codec, self.views, rows, slots, infos)
        else:
            row = Row(self.codec, self.views, int(rows[0]), slots, part)
            step = row.step(infos, copy=False)
        if self.same_step:
            self._announce(self.inbox.take_finals(step))
        self.inbox.complete(step)
        if debug and part is not None:
            self.loans.lend(step, rows)
        self._took(slots, step.started)
        return step

    def _whole_shard(
        self, slots: NDArray[np.intp], rows: NDArray[np.int64]
    ) -> slice | None:
        """The part of the block these slots are, if one view can show it."""
        first, last = int(slots[0]), int(slots[-1]) + 1
        contiguous = last - first == len(slots) and bool((rows == rows[0]).all())
        if contiguous and range(first, last) in self.executor.shards:
            return slice(first, last)
        return None

    def _took(self, slots: NDArray[np.intp], started: NDArray[np.bool_]) -> None:
        if self.told.assigned:
            self.told.took(slots, self.ledger.tickets(slots), started)
        if self.mender is not None:
            self.mender.took(slots, started)

    def _announce(self, columns: list[Column]) -> None:
        """Tell the workers of new columns.

        One that died since it finished must not take along the results that are just
        being taken: it is noticed when the next ones are waited for.
        """
        if not columns:
            return
        message = commands.Columns(columns)
        for worker in range(len(self.executor.shards)):
            with suppress(WorkerDied, WorkerHung):
                self.executor.tell(worker, message)

    # Letters --------------------------------------------------------------------------

    def _open(self, letters: Sequence[Letter], slots: NDArray[np.intp]) -> None:
        """Sort what came by mail; a fault of the slots being taken is raised here."""
        self.inbox.add(letters)
        if self.mender is not None:
            for letter in self.inbox.mended(slots):
                self._note(letter, self.mender)
        faults = self.faults(slots)
        if faults:
            faults = self._judged(faults)
            told = [position for position, one in enumerate(faults) if one.company]
            error = one_error_for(faults, told[0] if told else 0)
            error.step = self.without(slots, faults)
            raise error from error.__cause__

    def _note(self, letter: Letter, mender: Mender) -> None:
        """An env was built again by its worker: complete the fault, and count it."""
        assert letter.restarted is not None
        if letter.restarted.kind == "raised":
            letter.restarted = self.witness.raised(letter.restarted)
            mender.note(letter.restarted)

    def _judged(self, faults: list[Fault]) -> list[Fault]:
        """With whether company is to blame, where envs have any."""
        if self.company is None:
            return faults
        try:
            return self.company.judged(faults, self.witness.scripts)
        except KeyboardInterrupt as interrupt:
            # Whoever does not wait for the verdict still wants to see what went wrong.
            raise interrupt from one_error_for(faults)
