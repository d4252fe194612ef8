"""The receiver makes a Step of the rows of the block, and of letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.faults.report import one_error_for
from corral.engine.layout.codec import Codec
from corral.engine.layout.entries import Column
from corral.engine.layout.infos import NO_INFOS, Infos
from corral.engine.layout.plan import SCALAR_FIELDS, DataViews
from corral.engine.pool.fault_details import FaultDetails
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.recovery import Recovery
from corral.engine.pool.stale_views import StaleViews
from corral.engine.pool.state import PoolState
from corral.engine.worker.letters import Letter
from corral.errors import Fault, FaultError

RowViews = tuple[list[NDArray[Any]], list[NDArray[Any]], list[NDArray[Any]]]
"""Leaves of observations, leaves of last observations, and `SCALAR_FIELDS`."""


@dataclass(slots=True, eq=False, repr=False)
class Receiver:
    """Makes Steps of slots whose results are received.

    A fault of one slot is raised, with the results of the others.
    """

    state: PoolState
    codec: Codec
    views: DataViews
    shards: Sequence[range]
    inbox: Inbox
    stale_views: StaleViews
    fault_details: FaultDetails
    recovery: Recovery | None
    arrivals: Callable[[NDArray[np.intp]], tuple[Sequence[Letter], bool]]
    """What came beside the block: letters, and whether info columns were written."""
    announce_columns: Callable[[list[Column]], None]
    """Tells the workers of new info columns."""
    same_step: bool
    """Whether one step can end an episode and begin the next."""
    _rows: list[RowViews] = field(init=False)
    """All slots, by row."""
    _steps: list[Step | None] = field(init=False)
    """The same as Steps, made once and used every other step: a Step of views lives as
    long as its views, and making one costs 1 µs, a fiftieth of eight CartPole steps.
    None where letters complete the observations."""

    def __post_init__(self) -> None:
        slots = self.state.all
        self._rows = [self._views_of(row, slots) for row in (0, 1)]
        self._steps = [
            None if self.codec.mailed else self._step(slots, *views)
            for views in self._rows
        ]

    def take_all(self, copy: bool, debug: bool) -> Step:
        """The results of every slot, all on the same row: what `step` returns.

        Args:
            copy: return copies, not views.
            debug: raise when a view is kept too long.
        """
        state, inbox = self.state, self.inbox
        state.take_all()
        try:
            letters, informed = self.arrivals(state.all)
            row = state.tickets.base & 1
            if letters or inbox.letters:
                self._open_letters(letters, state.all)
            step = self._steps[row]
            if copy or debug or step is None:
                step = self._new_step(row, copy or debug)
            step.infos, step.final_infos = NO_INFOS, {}
            if informed or inbox.letters:
                step.infos = self._infos(state.all, row, whole=True)
            if self.same_step and step.started.any():
                self._take_finals(step)
            if inbox.letters or inbox.always:
                inbox.complete(step)
            if debug and not copy:
                self.stale_views.track(step, np.full(state.count, row))
            if state.messages or state.requests.assigned:
                state.results_taken(state.all, step.started)
            return step
        finally:
            state.leave()

    def take(self, slots: NDArray[np.intp], copy: bool, debug: bool) -> Step:
        """The results of some slots, or of slots on different rows."""
        self.state.take(slots)
        try:
            letters, _ = self.arrivals(slots)
            if letters or self.inbox.letters:
                self._open_letters(letters, slots)
            return self._results_of(slots, copy, debug)
        finally:
            self.state.leave()

    def add_finished_results(self, error: FaultError, letters: list[Letter]) -> None:
        """Add the results that are there to the error of a worker that ended."""
        self.inbox.add(letters)
        ready = self.state.ready()
        self.state.take(ready)
        others = self._faults(ready)
        error.faults = (error.fault, *others)
        error.step = self._results_except(ready, others)

    def _results_except(
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
        inbox, state = self.inbox, self.state
        rows = state.tickets_of(slots) & 1
        infos = self._infos(slots, rows, whole=False)
        viewed = not copy and self._is_whole_shard(slots, rows)
        if viewed:
            step = self._step(slots, *self._views_of(int(rows[0]), slots))
        else:
            step = self._step(slots, *self._gathered(rows, slots))
        step.infos = infos
        if self.same_step and step.started.any():
            self._take_finals(step)
        if inbox.letters or inbox.always:
            inbox.complete(step)
        if debug and viewed:
            self.stale_views.track(step, rows)
        if state.messages or state.requests.assigned:
            state.results_taken(slots, step.started)
        return step

    def _infos(
        self, slots: NDArray[np.intp], rows: int | NDArray[np.int64], whole: bool
    ) -> Infos:
        infos, new = self.inbox.infos(slots, rows, whole)
        if new:
            self.announce_columns(new)
        return infos

    def _take_finals(self, step: Step) -> None:
        new = self.inbox.take_finals(step)
        if new:
            self.announce_columns(new)

    # Rows -----------------------------------------------------------------------------

    def _new_step(self, row: int, copy: bool) -> Step:
        """One row of all slots, as views or in memory of its own."""
        views = self._rows[row]
        return self._step(self.state.all, *(map(_copied, views) if copy else views))

    def _is_whole_shard(self, slots: NDArray[np.intp], rows: NDArray[np.int64]) -> bool:
        """Whether one view can show these slots."""
        first, last = int(slots[0]), int(slots[-1]) + 1
        contiguous = last - first == len(slots) and bool((rows == rows[0]).all())
        return contiguous and range(first, last) in self.shards

    def _views_of(self, row: int, slots: NDArray[np.intp]) -> RowViews:
        """One row of contiguous slots."""
        part, views = slice(int(slots[0]), int(slots[-1]) + 1), self.views
        record = views.record[row, part]
        return (
            [array[row, part] for array in views.obs],
            [array[0, part] for array in views.final_obs],
            [record[name] for name in SCALAR_FIELDS],
        )

    def _gathered(self, rows: NDArray[np.int64], slots: NDArray[np.intp]) -> RowViews:
        """Slots from anywhere in the block, copied together."""
        views, record = self.views, self.views.record[rows, slots]
        return (
            [array[rows, slots] for array in views.obs],
            [array[0, slots] for array in views.final_obs],
            [np.ascontiguousarray(record[name]) for name in SCALAR_FIELDS],
        )

    def _step(
        self,
        slots: NDArray[np.intp],
        leaves: list[NDArray[Any]],
        final: list[NDArray[Any]],
        scalars: list[NDArray[Any]],
    ) -> Step:
        # With mailed leaves the batch is assembled when the letters are opened.
        whole = not self.codec.mailed
        return Step(
            slots=slots,
            obs=self.codec.assemble(leaves, ()) if whole else leaves,
            final_obs=self.codec.assemble(final, ()) if whole else final,
            infos=NO_INFOS,
            final_infos={},
            **dict(zip(SCALAR_FIELDS, scalars, strict=True)),
        )

    # Letters --------------------------------------------------------------------------

    def _open_letters(self, letters: Sequence[Letter], slots: NDArray[np.intp]) -> None:
        """Take in letters; raise the faults of the slots being received."""
        self.inbox.add(letters)
        if self.recovery is not None:
            for letter in self.inbox.rebuilt_env_letters(slots):
                fault = letter.restarted
                if fault is not None and fault.kind == "raised":
                    letter.restarted = self.fault_details.of_exception(fault)
                    self.recovery.env_rebuilt(letter.restarted)
        faults = self._faults(slots)
        if faults:
            error = one_error_for(faults)
            error.step = self._results_except(slots, faults)
            raise error from error.__cause__

    def _faults(self, slots: NDArray[np.intp]) -> list[Fault]:
        """The faults of these slots, which need a reset before their next step."""
        found = self.inbox.faults(slots)
        if found:
            self.state.stop(np.array([fault.slot for fault in found]))
        return [self.fault_details.of_exception(fault) for fault in found]


def _copied(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    return [array.copy() for array in arrays]
