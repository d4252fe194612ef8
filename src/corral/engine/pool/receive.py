"""The receiver makes a Step of the rows of the block, and of letters; stale views."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.faults.report import one_error_for
from corral.engine.layout.codec import Codec
from corral.engine.layout.infos import NO_INFOS
from corral.engine.layout.plan import ROW_MASK, SCALAR_FIELDS, DataViews
from corral.engine.pool.dispatch import Dispatcher
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.state import Chosen
from corral.engine.tree import mapped
from corral.engine.worker.letters import Letter
from corral.errors import Fault, FaultError, StaleViewError


class StaleViews:
    """(debug) Views that were handed out and have not expired.

    In debug mode the views of a Step are private copies. When the memory that they
    stand for is about to be reused, the copies are overwritten, and a caller that still
    holds one gets an error.
    """

    def __init__(self) -> None:
        # For each Step: the row of each slot, and the copies behind its views.
        self.lent: list[tuple[dict[int, int], list[weakref.ref[NDArray[Any]]]]] = []

    def track(self, step: Step, rows: NDArray[np.int64]) -> None:
        """Swap a Step's views for copies whose use can be noticed once they expire."""
        copies: list[weakref.ref[NDArray[Any]]] = []

        def private(leaf: Any) -> Any:
            if isinstance(leaf, np.ndarray):
                leaf = leaf.copy()
                copies.append(weakref.ref(leaf))
            return leaf

        for name in ("obs", "final_obs", *SCALAR_FIELDS):
            setattr(step, name, mapped(private, getattr(step, name)))
        row_of = dict(zip(step.slots.tolist(), rows.tolist(), strict=True))
        self.lent.append((row_of, copies))

    def expire(self, slots: Chosen, rows: NDArray[np.int64]) -> None:
        """These slots will write these rows: views of them expire.

        Called before anything is changed, so that a refused send was not sent.
        """
        written = dict(zip(slots.tolist(), rows.tolist(), strict=True)).items()
        for lent in [one for one in self.lent if one[0].items() & written]:
            self.lent.remove(lent)
            row_of, copies = lent
            held = [array for array in (ref() for ref in copies) if array is not None]
            for array in held:
                array.reshape(-1).view(np.uint8).fill(0xFB)
            if held:
                raise StaleViewError(
                    f"your code still holds a view of slots {sorted(row_of)} from an "
                    "earlier recv, and its memory is about to be reused; copy what you "
                    "keep, or use copy=True"
                )


# Leaves of observations, leaves of last observations, and `SCALAR_FIELDS`.
RowViews = tuple[list[NDArray[Any]], list[NDArray[Any]], list[NDArray[Any]]]


@dataclass(slots=True, eq=False, repr=False)
class Receiver:
    """Makes Steps of slots whose results are received.

    A fault of one slot is raised, with the results of the others.

    Attributes:
        same_step: Whether one step can end an episode and begin the next.
    """

    dispatcher: Dispatcher
    codec: Codec
    views: DataViews
    inbox: Inbox
    stale_views: StaleViews
    same_step: bool
    # All slots, by row.
    _rows: list[RowViews] = field(init=False)
    # The same as Steps, made once and used every other step: a Step of views lives as
    # long as its views, and making one costs 1 µs, a fiftieth of eight CartPole steps.
    # None where letters complete the observations.
    _steps: list[Step | None] = field(init=False)

    def __post_init__(self) -> None:
        slots = self.dispatcher.state.all
        self._rows = [self._rows_of(row, slice(None)) for row in (0, 1)]
        self._steps = [
            None if self.codec.mailed else self._step(slots, *views)
            for views in self._rows
        ]
        self.dispatcher.on_broken = self._add_finished_results

    def take(self, slots: Chosen | None, copy: bool, debug: bool) -> Step:
        """The results of these slots, or of all.

        Args:
            slots: None for all slots, if they are on the same row.
            copy: return copies, not views.
            debug: raise when a view is kept too long.
        """
        dispatcher, state = self.dispatcher, self.dispatcher.state
        if slots is None:
            chosen = state.all
            state.take_all()
        else:
            chosen = slots
            state.take(slots)
        try:
            if dispatcher.recovery.active:
                dispatcher.recovery.before_results(chosen)
            while True:
                try:
                    letters, informed = dispatcher.executor.arrivals()
                    break
                except FaultError as error:  # of a worker that died while it wrote
                    dispatcher.recover(error)
            if letters or self.inbox.letters:
                self._open_letters(letters, chosen)
            if slots is None:
                return self._results_of_all(copy, debug, informed)
            return self._results_of(slots, copy, debug)
        finally:
            state.leave()

    def _add_finished_results(self, error: FaultError, letters: list[Letter]) -> None:
        """Add the results that are there to the error of a worker that ended."""
        state, details = self.dispatcher.state, self.dispatcher.fault_details
        self.inbox.add(letters)
        ready = state.ready()
        state.take(ready)
        others = self._faults(self.inbox.of(ready))
        # Several workers may have ended in one batch, by one cause.
        ended = [
            details.of_dead_worker(fault)
            for fault in self.dispatcher.executor.ended_workers()
            if fault.worker != error.fault.worker
        ]
        error.faults = (error.fault, *ended, *others.values())
        error.step = self._results_except(ready, others)

    def _results_except(self, slots: Chosen, failed: Iterable[int]) -> Step | None:
        """The results of those slots that were fine."""
        fine = slots[~np.isin(slots, [*failed])]
        return self._results_of(fine, copy=True) if len(fine) else None

    def _results_of_all(self, copy: bool, debug: bool, informed: bool) -> Step:
        """The results of all slots, whose letters are open; see `take`."""
        inbox, state = self.inbox, self.dispatcher.state
        row = state.tickets.base & ROW_MASK
        step = self._steps[row]
        if copy or debug or step is None:
            views: Any = self._rows[row]
            if copy:
                views = [[array.copy() for array in part] for part in views]
            step = self._step(state.all, *views)
        step.final_infos = {}
        if informed or inbox.letters:
            step.infos = inbox.infos(state.all, row, whole=True)
        else:
            step.infos = NO_INFOS
        # `step.started.any()` takes 0.9 µs, this 0.2.
        if self.same_step and np.count_nonzero(step.started):
            inbox.take_finals(step)
        if (
            inbox.letters
            or inbox.always
            or inbox.new_columns
            or debug
            or state.messages
            or state.assigned
        ):
            self._complete(step, debug and not copy)
        return step

    def _results_of(self, slots: Chosen, copy: bool, debug: bool = False) -> Step:
        """The results of slots whose letters are open; see `take`."""
        rows = self.dispatcher.state.tickets_of(slots) & ROW_MASK
        viewed = not copy and self._is_whole_shard(slots, rows)
        if viewed:
            part = slice(int(slots[0]), int(slots[-1]) + 1)
            views = self._rows_of(int(rows[0]), part)
        else:
            views = self._rows_of(rows, slots)
        step = self._step(slots, *views)
        step.infos = self.inbox.infos(slots, rows, whole=False)
        if self.same_step and np.count_nonzero(step.started):
            self.inbox.take_finals(step)
        self._complete(step, debug and viewed)
        return step

    def _complete(self, step: Step, tracked: bool) -> None:
        """Add what came by letter; announce new columns, and forget old messages."""
        inbox, state = self.inbox, self.dispatcher.state
        if inbox.new_columns:
            new, inbox.new_columns = inbox.new_columns, []
            self.dispatcher.announce_columns(new)
        if tracked:  # before letters: what came with them is no view
            self.stale_views.track(step, state.tickets_of(step.slots) & ROW_MASK)
        if inbox.letters or inbox.always:
            inbox.complete(step)
        if state.messages or state.assigned:
            state.results_taken(step.slots, step.started)

    # Rows -----------------------------------------------------------------------------

    def _is_whole_shard(self, slots: Chosen, rows: NDArray[np.int64]) -> bool:
        """Whether one view can show these slots."""
        first, last = int(slots[0]), int(slots[-1]) + 1
        contiguous = last - first == len(slots) and bool((rows == rows[0]).all())
        return contiguous and range(first, last) in self.dispatcher.executor.shards

    def _rows_of(
        self, rows: int | NDArray[np.int64], slots: slice | Chosen
    ) -> RowViews:
        """Views of one row of contiguous slots, or copies of slots from anywhere."""
        views, record = self.views, self.views.record[rows, slots]
        scalars = [record[name] for name in SCALAR_FIELDS]
        if not isinstance(slots, slice):
            scalars = [np.ascontiguousarray(one) for one in scalars]
        final = [array[0, slots] for array in views.final_obs]
        return [array[rows, slots] for array in views.obs], final, scalars

    def _step(
        self,
        slots: Chosen,
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

    def _open_letters(self, letters: list[Letter], slots: Chosen) -> None:
        """Take in letters; raise the faults of the slots being received."""
        self._add_letters(letters)
        details, of_slots = self.dispatcher.fault_details, self.inbox.of(slots)
        for letter in of_slots:
            if letter.restarted is not None and letter.restarted.kind == "raised":
                letter.restarted = details.of_exception(letter.restarted)
                self.dispatcher.recovery.env_rebuilt(letter.restarted)
        faults = self._faults(of_slots)
        if faults:
            error = one_error_for([*faults.values()])
            error.step = self._results_except(slots, faults)
            raise error

    def _add_letters(self, letters: list[Letter]) -> None:
        """Keep letters, less those of results that Ctrl-C has kept from the caller."""
        inbox = self.inbox
        for letter in [one for one in inbox.letters.values() if self._is_void(one)]:
            del inbox.letters[letter.slot]
        inbox.add(one for one in letters if not self._is_void(one))
        letters.clear()

    def _is_void(self, letter: Letter) -> bool:
        """Whether its slot has been sent another command since.

        A fault is told all the same, unless the caller has begun another episode.
        """
        state, ticket = self.dispatcher.state, letter.ticket
        if ticket is None or ticket == state.tickets.word(letter.slot):
            return False
        return letter.fault is None or state.is_reset_since(letter.slot, ticket)

    def _faults(self, letters: list[Letter]) -> dict[int, Fault]:
        """The faults of slots by their letters; a reset must precede the next step."""
        failed = [letter.slot for letter in letters if letter.fault is not None]
        if failed:
            self.dispatcher.state.stop(np.array(failed))
        found = self.inbox.take_faults(letters)
        complete = self.dispatcher.fault_details.of_exception
        return {slot: complete(fault) for slot, fault in found.items()}
