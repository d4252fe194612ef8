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
from corral.engine.pool.episode_requests import EpisodeRequests
from corral.engine.pool.fault_details import FaultDetails
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.ledger import Ledger
from corral.engine.pool.recovery import Recovery
from corral.engine.pool.rows import NO_INFOS, BlockRow, gather
from corral.engine.pool.stale_views import StaleViews
from corral.engine.worker import commands
from corral.engine.worker.letters import Letter
from corral.errors import Fault, WorkerDied, WorkerHung


@dataclass(slots=True, eq=False, repr=False)
class Receiver:
    """Results of slots that have been taken, in the ledger's eyes.

    A fault of one of them is raised, with the results of the others.
    """

    codec: Codec
    views: DataViews
    rows: tuple[BlockRow, BlockRow]
    """The block's rows, all slots of them."""
    executor: Executor
    ledger: Ledger
    inbox: Inbox
    stale_views: StaleViews
    requests: EpisodeRequests
    fault_details: FaultDetails
    recovery: Recovery | None
    same_step: bool
    """Whether one step can end an episode and begin the next."""

    def all_slots(self, letters: Sequence[Letter], copy: bool, debug: bool) -> Step:
        """Every slot, all on the same row; with `debug` views are called back."""
        ledger, inbox = self.ledger, self.inbox
        row = ledger.base & 1
        if letters or inbox.letters:
            self._open_letters(letters, ledger.all)
        infos = NO_INFOS
        if self.executor.has_new_infos() or inbox.letters:
            infos, new = inbox.infos(ledger.all, row, whole=True)
            self._announce_columns(new)
        step = self.rows[row].step(infos, copy or debug)
        if self.same_step and step.started.any():
            self._announce_columns(inbox.take_finals(step))
        if inbox.letters or inbox.always:
            inbox.complete(step)
        if debug and not copy:
            self.stale_views.track(step, ledger.tickets(ledger.all) & 1)
        if self.recovery is not None or self.requests.assigned:
            self._results_taken(ledger.all, step.started)
        return step

    def some_slots(
        self,
        slots: NDArray[np.intp],
        letters: Sequence[Letter],
        copy: bool,
        debug: bool,
    ) -> Step:
        """Some slots, or slots on different rows."""
        self._open_letters(letters, slots)
        return self._results_of(slots, copy, debug)

    def faults(self, slots: NDArray[np.intp]) -> list[Fault]:
        """What went wrong in these slots, which want a reset before their next step."""
        faults = [
            self.fault_details.of_exception(fault) for fault in self.inbox.faults(slots)
        ]
        if faults:
            failed = np.array([fault.slot for fault in faults])
            self.ledger.start(failed, started=False)
        return faults

    def results_except(
        self, slots: NDArray[np.intp], faults: list[Fault]
    ) -> Step | None:
        """The results of those slots that were fine."""
        failed = np.array([fault.slot for fault in faults], np.intp)
        fine = slots[~np.isin(slots, failed)]
        return self._results_of(fine, copy=True) if len(fine) else None

    def _results_of(
        self, slots: NDArray[np.intp], copy: bool, debug: bool = False
    ) -> Step:
        """The results of some slots, whose letters are open."""
        rows = self.ledger.tickets(slots) & 1
        infos, new = self.inbox.infos(slots, rows, whole=False)
        self._announce_columns(new)
        part = None if copy else self._whole_shard(slots, rows)
        if part is None:
            step = gather(self.codec, self.views, rows, slots, infos)
        else:
            row = BlockRow(self.codec, self.views, int(rows[0]), slots, part)
            step = row.step(infos, copy=False)
        if self.same_step:
            self._announce_columns(self.inbox.take_finals(step))
        self.inbox.complete(step)
        if debug and part is not None:
            self.stale_views.track(step, rows)
        self._results_taken(slots, step.started)
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

    def _results_taken(
        self, slots: NDArray[np.intp], started: NDArray[np.bool_]
    ) -> None:
        if self.requests.assigned:
            self.requests.results_taken(slots, self.ledger.tickets(slots), started)
        if self.recovery is not None:
            self.recovery.results_taken(slots, started)

    def _announce_columns(self, columns: list[Column]) -> None:
        """Tell the workers of new columns.

        One that died since it finished must not take along the results that are just
        being taken: it is noticed when the next ones are waited for.
        """
        if not columns:
            return
        message = commands.NewColumns(columns)
        for worker in range(len(self.executor.shards)):
            with suppress(WorkerDied, WorkerHung):
                self.executor.post(worker, message)

    # Letters --------------------------------------------------------------------------

    def _open_letters(self, letters: Sequence[Letter], slots: NDArray[np.intp]) -> None:
        """Sort what came by mail; a fault of the slots being taken is raised here."""
        self.inbox.add(letters)
        if self.recovery is not None:
            for letter in self.inbox.rebuilt_env_letters(slots):
                self._note_rebuilt_env(letter, self.recovery)
        faults = self.faults(slots)
        if faults:
            error = one_error_for(faults)
            error.step = self.results_except(slots, faults)
            raise error from error.__cause__

    def _note_rebuilt_env(self, letter: Letter, recovery: Recovery) -> None:
        """An env was built again by its worker: complete the fault, and count it."""
        assert letter.restarted is not None
        if letter.restarted.kind == "raised":
            letter.restarted = self.fault_details.of_exception(letter.restarted)
            recovery.env_rebuilt(letter.restarted)
