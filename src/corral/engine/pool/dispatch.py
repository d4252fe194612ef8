"""The dispatcher talks to the workers: commands, messages, waiting for results.

A worker that died or hung is replaced where the pool has a `Recovery`; where it has
none, an error says what the worker was doing, and the pool can only be closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from corral.engine.executors.assign import worker_and_index
from corral.engine.executors.contract import Executor
from corral.engine.faults.report import error_for
from corral.engine.layout.entries import Column
from corral.engine.layout.plan import TICKET_MASK
from corral.engine.pool.actions import Actions
from corral.engine.pool.fault_details import FaultDetails
from corral.engine.pool.lifecycle import BROKEN, OPEN, SENDING, Lifecycle
from corral.engine.pool.recovery import Recovery
from corral.engine.pool.state import PoolState
from corral.engine.worker import commands
from corral.engine.worker.commands import Verb
from corral.engine.worker.letters import Letter
from corral.errors import FaultError, WorkerDied, WorkerHung


@dataclass(slots=True, eq=False, repr=False)
class Dispatcher:
    """Sends everything to the workers, and waits for results."""

    state: PoolState
    lifecycle: Lifecycle
    executor: Executor
    actions: Actions
    fault_details: FaultDetails
    recovery: Recovery | None
    on_broken: Callable[[FaultError, list[Letter]], None] = field(init=False)
    """Adds the results of other workers, and their last letters, to a final error."""

    # Commands -------------------------------------------------------------------------

    def step_all(self, leaves: list[NDArray[Any]], mode: int) -> None:
        """Have all slots take a step with these actions."""
        state, tickets = self.state, self.state.tickets
        self.lifecycle.state = SENDING
        if tickets.even or tickets.level():
            mode |= self.actions.write_all(leaves, tickets.base + 1)
        else:
            rows = state.tickets_of(state.all) + 1
            mode |= self.actions.write(leaves, rows, state.all)
        state.send_all(mode)
        self.executor.send_all(mode)
        if self.lifecycle.state == SENDING:
            self.lifecycle.state = OPEN

    def step(
        self, slots: NDArray[np.intp], leaves: list[NDArray[Any]], mode: int
    ) -> None:
        """Have these slots take a step with these actions."""
        self.lifecycle.state = SENDING
        rows = self.state.tickets_of(slots) + 1
        mode |= self.actions.write(leaves, rows, slots)
        self.state.send(slots, Verb.STEP, mode)
        self.executor.send(slots, Verb.STEP, mode)
        if self.lifecycle.state == SENDING:
            self.lifecycle.state = OPEN

    def step_raw(
        self, slots: NDArray[np.intp], actions: Sequence[Any], mode: int
    ) -> None:
        """Have these slots take a step with actions that fit no space."""
        self._post_by_slot(
            (slot, commands.RawAction(self.index(slot), action))
            for slot, action in zip(slots.tolist(), actions, strict=True)
        )
        self.lifecycle.state = SENDING
        self.state.send(slots, Verb.STEP, mode)
        self.actions.skip(self.state.tickets_of(slots), slots)
        self.executor.send(slots, Verb.STEP, mode)
        self._sent()

    def reset(
        self,
        slots: NDArray[np.intp],
        seeds: list[int],
        requests: dict[int, dict[str, Any]],
    ) -> None:
        """Have these slots begin an episode.

        Args:
            slots: which.
            seeds: for each of them, -1 for none.
            requests: by slot, options and task of its episode, and a big seed.
        """
        state = self.state
        self.executor.reset_seed[slots] = seeds
        self._post_by_slot(
            (slot, commands.NextEpisode(self.index(slot), **message))
            for slot, message in requests.items()
        )
        self.lifecycle.state = SENDING
        state.send(slots, Verb.RESET)
        tickets = state.tickets_of(slots)
        state.start(slots, tickets)
        state.requests.reset(slots, tickets, requests)
        self.executor.send(slots, Verb.RESET, 0)
        self._sent()

    def _sent(self) -> None:
        """The send is complete: the state and the workers agree again.

        Ctrl-C before this leaves the pool "sending", in which only `close` is safe. A
        signal handler may have closed the pool meanwhile.
        """
        if self.lifecycle.state == SENDING:
            self.lifecycle.state = OPEN

    def index(self, slot: int) -> int:
        """The slot's index in its shard."""
        return worker_and_index(slot, self.executor.shards)[1]

    # Messages -------------------------------------------------------------------------

    def mail_actions(self, slots: NDArray[np.intp], mailed: list[Any]) -> None:
        """Send the parts of actions that have no place in the block."""
        self._post_by_slot(
            (
                slot,
                commands.MailedAction(
                    self.index(slot), [column[position] for column in mailed]
                ),
            )
            for position, slot in enumerate(slots.tolist())
        )

    def assign(self, slot: int, task: Any) -> None:
        """Give a task to the slot's first episode that starts after what was sent."""
        message = commands.NextEpisode(self.index(slot), task=task)
        self._post_by_slot([(slot, message)], with_command=False)
        self.state.requests.assign(slot, self.state.tickets.of(slot), task)

    def new_root(self, seed: int) -> None:
        """Have every worker count its episodes from zero, with this root seed."""
        if self.recovery is not None:
            self.recovery.root_seed_set(seed)
        for worker in range(len(self.executor.shards)):
            try:
                self.executor.post(worker, commands.NewRootSeed(seed))
            except WorkerDied as error:
                self.recover(error)  # its replacement gets the seed

    def announce_columns(self, columns: list[Column]) -> None:
        """Send new info columns to the workers.

        A worker that died after it finished must not spoil the results that are being
        received: the next wait reports it.
        """
        message = commands.NewColumns(columns)
        for worker in range(len(self.executor.shards)):
            with suppress(WorkerDied, WorkerHung):
                self.executor.post(worker, message)

    def _post_by_slot(
        self, by_slot: Iterator[tuple[int, Any]] | list[Any], with_command: bool = True
    ) -> None:
        """Post messages about slots; most belong to the next command."""
        shards, messages = self.executor.shards, []
        for slot, message in by_slot:
            messages.append((worker_and_index(slot, shards)[0], message))
            if with_command and self.recovery is not None:
                self.state.messages.setdefault(slot, []).append(message)
        while messages:
            try:
                self.executor.post_each(messages)
                return
            except (WorkerDied, WorkerHung) as error:
                # Again to the others: a message that arrives twice counts once.
                self.recover(error)

    # Waiting --------------------------------------------------------------------------

    def wait(
        self,
        count: int,
        timeout: float | None,
        enough: Callable[[], bool] | None = None,
    ) -> bool:
        """Wait for `count` results; False if the timeout passes first.

        Rings only wake the caller; `done` decides. `enough` is given where the caller
        waits for some of what is under way, and `count` is then the number of rings to
        expect.
        """
        state = self.state
        target = state.taken + count & TICKET_MASK
        is_done = enough or state.complete
        began = perf_counter()
        try:
            if self.recovery is not None:
                return self._wait_with_recovery(
                    self.recovery, target, timeout, is_done, enough is not None
                )
            return self.executor.wait(target, timeout, is_done, enough is not None)
        except (WorkerDied, WorkerHung) as error:
            self.raise_worker_gone(error)
        finally:  # `state.waited_since`, without the call
            state.mark = now = perf_counter()
            state.waiting_seconds += now - began

    def _wait_with_recovery(
        self,
        recovery: Recovery,
        target: int,
        timeout: float | None,
        is_done: Callable[[], bool],
        only_some: bool,
    ) -> bool:
        """The same, with dead workers replaced meanwhile."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            left = None if deadline is None else deadline - monotonic()
            try:
                recovery.check_workers(perf_counter())
                # Rings may be missing by then: do not wait for them.
                if recovery.recovered and is_done():
                    return True
                return self.executor.wait(target, left, is_done, only_some)
            except FaultError as error:
                self.recover(error)

    def arrivals(self, slots: NDArray[np.intp]) -> tuple[Sequence[Letter], bool]:
        """Letters, and whether info columns were written, as of the executor."""
        if self.recovery is None:
            try:
                return self.executor.arrivals()
            except (WorkerDied, WorkerHung) as error:
                self.raise_worker_gone(error)
        self.recovery.before_results(slots)
        while True:
            try:
                return self.executor.arrivals()
            except FaultError as error:  # of a worker that died while it wrote another
                self.recover(error)

    # Dead workers ---------------------------------------------------------------------

    def recover(self, error: FaultError) -> None:
        """Replace a worker, or raise its error if that is not possible."""
        if self.recovery is None:
            self.raise_worker_gone(error)
        try:
            self.recovery.recover(error)
        except FaultError as final:
            self.raise_worker_gone(final)

    def raise_worker_gone(
        self, error: FaultError, asked: tuple[str, Any] | None = None
    ) -> NoReturn:
        """Raise the error of a dead worker; the pool is broken."""
        self.lifecycle.state = BROKEN
        worker = error.fault.worker
        if worker is None:
            raise error
        fault = self.fault_details.of_dead_worker(error.fault, worker, asked)
        final = error_for(fault)
        assert isinstance(final, FaultError)
        workers = range(len(self.executor.shards))
        letters = [one for each in workers for one in self.executor.last_letters(each)]
        self.on_broken(final, letters)
        raise final from final.__cause__
