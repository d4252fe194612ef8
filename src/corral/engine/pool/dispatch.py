"""The dispatcher talks to the workers: commands, messages, and waiting for results.

A worker that died or hung is replaced where `Recovery` can do so; if not, an error says
what the worker was doing, and the pool can only be closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from corral.engine.executors.assign import worker_and_index
from corral.engine.faults.report import error_for
from corral.engine.layout.plan import WORD_MASK
from corral.engine.layout.readout import Column
from corral.engine.pool.fault_details import FaultDetails
from corral.engine.pool.recovery import Recovery
from corral.engine.pool.state import BROKEN, OPEN, SENDING, Chosen, Lifecycle
from corral.engine.worker import commands
from corral.engine.worker.commands import Verb
from corral.engine.worker.letters import Letter
from corral.errors import Fault, FaultError, WorkerDied, WorkerHung

# Seconds between checks of the workers while results keep coming.
HEALTH_CHECK_INTERVAL = 0.02


class Dispatcher:
    """Sends commands and messages to the workers, and waits for results.

    Attributes:
        on_broken: Adds the results of other workers, and their last letters, to a final
            error.
    """

    on_broken: Callable[[FaultError, list[Letter]], None]

    def __init__(
        self, lifecycle: Lifecycle, fault_details: FaultDetails, recovery: Recovery
    ) -> None:
        self.lifecycle = lifecycle
        self.fault_details = fault_details
        self.recovery = recovery
        self.state = fault_details.state
        self.executor = fault_details.executor
        self.actions = fault_details.actions
        self._last_check = 0.0

    # Commands -------------------------------------------------------------------------

    def step_all(self, leaves: list[NDArray[Any]], mode: int) -> None:
        """Have all slots take a step with these actions."""
        state, tickets = self.state, self.state.tickets
        self.lifecycle.state = SENDING
        if tickets.even or tickets.level():
            mode |= self.actions.write(leaves, tickets.base + 1)
        else:
            rows = state.tickets_of(state.all) + 1
            mode |= self.actions.write(leaves, rows, state.all)
        state.send_all(mode)
        self.executor.send_all(mode)
        if self.lifecycle.state == SENDING:
            self.lifecycle.state = OPEN

    def step(self, slots: Chosen, leaves: list[NDArray[Any]], mode: int) -> None:
        """Have these slots take a step with these actions."""
        rows = self.state.tickets_of(slots) + 1
        self._send(slots, Verb.STEP, mode | self.actions.write(leaves, rows, slots))

    def step_raw(self, slots: Chosen, actions: Sequence[Any], mode: int) -> None:
        """Have these slots take a step with actions that fit no space."""
        with self.lifecycle.sending(more=True):
            self._post_by_slot(
                (slot, commands.RawAction(self._index(slot), action))
                for slot, action in zip(slots.tolist(), actions, strict=True)
            )
        self.actions.skip(self.state.tickets_of(slots) + 1, slots)
        self._send(slots, Verb.STEP, mode)

    def reset(
        self, slots: Chosen, seeds: list[int], requests: dict[int, dict[str, Any]]
    ) -> None:
        """Have these slots begin an episode.

        Args:
            slots: which.
            seeds: for each of them, -1 for none.
            requests: by slot, options and task of its episode, and a big seed.
        """
        with self.lifecycle.sending(more=True):
            self.executor.control.reset_seed[slots] = seeds
            self._post_by_slot(
                (slot, commands.NextEpisode(self._index(slot), **message))
                for slot, message in requests.items()
            )
        tickets = self.state.tickets_of(slots) + 1
        self.state.start(slots, tickets, requests)
        self._send(slots, Verb.RESET, 0)

    def _send(self, slots: Chosen, verb: Verb, mode: int) -> None:
        """Send these slots a command.

        Ctrl-C in here leaves the pool "sending", in which only `close` is safe. A
        signal handler may close the pool meanwhile.
        """
        self.lifecycle.state = SENDING
        self.state.send(slots, verb, mode)
        self.executor.send(slots, verb, mode)
        if self.lifecycle.state == SENDING:
            self.lifecycle.state = OPEN

    def _index(self, slot: int) -> int:
        """The slot's index in its shard."""
        return worker_and_index(slot, self.executor.shards)[1]

    # Messages -------------------------------------------------------------------------

    def mail_actions(self, slots: Chosen, mailed: list[Any]) -> None:
        """Send the parts of actions that have no place in the block; a step follows."""
        rows = zip(slots.tolist(), zip(*mailed, strict=True), strict=True)
        with self.lifecycle.sending(more=True):
            self._post_by_slot(
                (slot, commands.MailedAction(self._index(slot), list(parts)))
                for slot, parts in rows
            )

    def assign(self, slot: int, task: Any) -> None:
        """Give a task to the slot's first episode that starts after what was sent."""
        message = commands.NextEpisode(self._index(slot), task=task)
        with self.lifecycle.sending():
            self._post_by_slot([(slot, message)], with_command=False)
            self.state.assigned[slot] = self.state.tickets.of(slot), task

    def new_root(self, seed: int) -> None:
        """Have every worker count its episodes from zero, with this root seed."""
        self.recovery.set_root_seed(seed)
        for worker in range(len(self.executor.shards)):
            try:
                self.executor.post([(worker, commands.NewRootSeed(seed))])
            except WorkerDied as error:
                self.recover(error)  # its replacement gets the seed

    def new_sample_task(self, sample_task: Any) -> None:
        """Have every worker draw the tasks of its next episodes with this function."""
        for worker in range(len(self.executor.shards)):
            try:
                self.executor.post([(worker, commands.NewSampleTask(sample_task))])
            except WorkerDied as error:
                self.recover(error)  # its replacement starts with the function

    def announce_columns(self, columns: list[Column]) -> None:
        """Send new info columns to the workers.

        A worker that died after it finished must not spoil the results that are being
        received: the next wait reports it.
        """
        message, life = commands.NewColumns(columns), self.lifecycle
        for worker in range(len(self.executor.shards)):
            with suppress(WorkerDied, WorkerHung), life.sending(life.state):
                self.executor.post([(worker, message)])

    def _post_by_slot(
        self, by_slot: Iterable[tuple[int, Any]], with_command: bool = True
    ) -> None:
        """Post messages about slots; most belong to the next command."""
        shards, messages = self.executor.shards, []
        for slot, message in by_slot:
            messages.append((worker_and_index(slot, shards)[0], message))
            if with_command and self.recovery.active:
                self.state.messages.setdefault(slot, []).append(message)
        while messages:
            try:
                self.executor.post(messages)
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
        waits for some of the pending results, and `count` is then the number of rings
        to expect.
        """
        state, recovery, executor = self.state, self.recovery, self.executor
        target = state.taken + count & WORD_MASK
        is_done, only_some = enough or state.complete, enough is not None
        began, left = perf_counter(), timeout
        now = began
        try:
            while True:
                try:
                    # Results of others may always be there before it comes to waiting.
                    watch = only_some or recovery.active
                    if watch and now - self._last_check > HEALTH_CHECK_INTERVAL:
                        self._last_check = now
                        executor.check_workers()
                    # Rings may be missing by then: do not wait for them.
                    if recovery.recovered and is_done():
                        return True
                    return executor.wait(target, left, is_done, only_some)
                except FaultError as error:
                    self.recover(error)
                now = perf_counter()
                if timeout is not None:
                    left = began + timeout - now
        finally:  # `state.waited_since`, without the call
            state.mark = now = perf_counter()
            state.waiting_seconds += now - began

    # Dead workers ---------------------------------------------------------------------

    def recover(self, error: FaultError) -> Fault:
        """Replace a worker, or raise its error if that is not possible.

        The pool is broken then.
        """
        try:
            return self.recovery.recover(error)
        except FaultError as last:
            self.lifecycle.state = BROKEN
            final = error_for(self.fault_details.of_dead_worker(last.fault))
            assert isinstance(final, FaultError)
            workers = range(len(self.executor.shards))
            letters = map(self.executor.last_letters, workers)
            self.on_broken(final, list(chain.from_iterable(letters)))
            raise final from final.__cause__
