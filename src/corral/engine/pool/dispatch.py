"""The dispatcher sends commands, messages and questions to workers, and waits for them.

A worker that died or hung is replaced where the pool has a `Recovery`; where it has
none, an error says what the worker was doing, and the pool can only be closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic, perf_counter
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from corral.engine.executors.assign import worker_and_index
from corral.engine.executors.contract import Executor
from corral.engine.faults.report import error_for
from corral.engine.layout.plan import TICKET_MASK
from corral.engine.pool.caller_time import CallerTime
from corral.engine.pool.fault_details import FaultDetails
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.ledger import Ledger
from corral.engine.pool.lifecycle import BROKEN, Lifecycle
from corral.engine.pool.questions import Question
from corral.engine.pool.receive import Receiver
from corral.engine.pool.recovery import Recovery
from corral.engine.worker.commands import Verb
from corral.engine.worker.letters import Letter, Reply
from corral.errors import CorralError, Fault, FaultError, WorkerDied, WorkerHung


@dataclass(slots=True, eq=False, repr=False)
class Dispatcher:
    """Commands, messages and questions to workers, and what to do about a dead one."""

    lifecycle: Lifecycle
    executor: Executor
    ledger: Ledger
    inbox: Inbox
    caller_time: CallerTime
    fault_details: FaultDetails
    receiver: Receiver
    recovery: Recovery | None
    _all_done: Callable[[], bool] = field(init=False)

    def __post_init__(self) -> None:
        self._all_done = partial(self.ledger.complete, self.executor.done)

    # Sending --------------------------------------------------------------------------

    def dispatch(self, slots: NDArray[np.intp], verb: Verb, mode: int) -> None:
        """Have these slots do it."""
        if self.recovery is not None:
            self.recovery.command_sent(slots, verb, mode)
        self.executor.send(slots, verb, mode)

    def dispatch_all(self, mode: int) -> None:
        """Have all slots take a step."""
        if self.recovery is not None:
            self.recovery.command_sent(None, Verb.STEP, mode)
        self.executor.send_all(mode)

    def worker_and_index(self, slot: int) -> tuple[int, int]:
        """The worker that has the slot, and the slot's index in its shard."""
        return worker_and_index(slot, self.executor.shards)

    def post_each(self, messages: list[tuple[int, Any]], hold: bool = True) -> None:
        """Post messages about slots; `hold` if they belong to the next command."""
        if self.recovery is None:
            with self._raising_worker_gone():
                self.executor.post_each(messages)
            return
        if hold:
            for worker, message in messages:
                first = self.executor.shards[worker].start
                self.recovery.message_sent(first + message.index, message)
        while True:
            try:
                self.executor.post_each(messages)
                return
            except WorkerDied as error:
                # Once more to the others: what they are told twice counts once.
                self._recover(error)

    def post_all(self, message: Any) -> None:
        """Post a message to every worker."""
        for worker in range(len(self.executor.shards)):
            try:
                self.executor.post(worker, message)
            except WorkerDied as error:
                if self.recovery is None:
                    self._raise_worker_gone(error)
                self._recover(error)  # and is told when it has returned

    # Asking ---------------------------------------------------------------------------

    def ask(self, question: Question) -> None:
        """Put a question to every worker that it concerns."""
        self.ledger.question_count += 1
        with self._raising_worker_gone(question):
            self.executor.ask(question.messages())

    def answers(self, question: Question, timeout: float | None) -> dict[int, Reply]:
        """What they say to that, by worker."""
        with self._raising_worker_gone(question):
            return self.executor.answers(question.by_worker, timeout)

    # Waiting --------------------------------------------------------------------------

    def wait_for_results(
        self,
        count: int,
        timeout: float | None,
        enough: Callable[[], bool] | None = None,
    ) -> bool:
        """Whether so many results that were not taken yet are there in time.

        Rings only wake us; what is done decides. `enough` says so where it is about
        some of what is under way, and `count` how many rings to expect until then.
        """
        target = self.ledger.taken + count & TICKET_MASK
        is_done = enough or self._all_done
        began = perf_counter()
        try:
            if self.recovery is not None:
                only_some = enough is not None
                return self._wait_with_recovery(
                    self.recovery, target, timeout, is_done, only_some
                )
            return self.executor.wait(target, timeout, is_done, enough is not None)
        except (WorkerDied, WorkerHung) as error:
            self._raise_worker_gone(error)
        finally:
            self.caller_time.waited(began)

    def _wait_with_recovery(
        self,
        recovery: Recovery,
        target: int,
        timeout: float | None,
        is_done: Callable[[], bool],
        only_some: bool,
    ) -> bool:
        """The same, with workers replaced on the way."""
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
                self._recover(error)

    def letters(self, slots: NDArray[np.intp]) -> Sequence[Letter]:
        """What came beside the block; what these slots lost comes along."""
        if self.recovery is None:
            try:
                return self.executor.letters()
            except (WorkerDied, WorkerHung) as error:
                self._raise_worker_gone(error)
        self.recovery.before_results(slots)
        while True:
            try:
                return self.executor.letters()
            except FaultError as error:  # of a worker that died while it wrote another
                self._recover(error)

    # Dead workers ---------------------------------------------------------------

    def _recover(self, error: FaultError) -> None:
        """Have a worker replaced, or raise its error if that is not possible."""
        assert self.recovery is not None
        try:
            self.recovery.recover(error)
        except FaultError as final:
            self._raise_worker_gone(final)

    def _raise_worker_gone(
        self, error: FaultError, question: Question | None = None
    ) -> NoReturn:
        """Raise an error that says what a dead worker was doing; the pool is broken."""
        self.lifecycle.state = BROKEN
        worker = error.fault.worker
        if worker is None:
            raise error
        fault = self.fault_details.of_dead_worker(error.fault, worker, question)
        final = error_for(fault)
        self._add_finished_results(final, fault)
        raise final from final.__cause__

    def _add_finished_results(self, error: CorralError, fault: Fault) -> None:
        """Results that are there, of workers that are not to blame; waits for none."""
        for worker in range(len(self.executor.shards)):
            self.inbox.add(self.executor.last_letters(worker))
        ready = self.ledger.ready(self.executor.done)
        self.ledger.take(ready)
        others = self.receiver.faults(ready)
        error.faults = (fault, *others)
        error.step = self.receiver.results_except(ready, others)

    @contextmanager
    def _raising_worker_gone(self, question: Question | None = None) -> Iterator[None]:
        try:
            yield
        except (WorkerDied, WorkerHung) as error:
            worker = error.fault.worker
            if self.recovery is None or worker is None:
                self._raise_worker_gone(error, question)
            # The pool goes on; what the question asked for is gone with the worker.
            final_error = error_for(
                self.fault_details.of_dead_worker(error.fault, worker, question)
            )
            self._recover(error)
            raise final_error from final_error.__cause__
