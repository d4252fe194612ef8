"""The line to the workers: what they are told and asked, and waiting for them.

A worker that is gone has another put in its place where there is a mender; where there
is none it is buried: the error says what it was doing, and the pool serves no more.
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

from corral.engine.executors.assign import place_of
from corral.engine.executors.contract import Executor
from corral.engine.faults.report import error_for
from corral.engine.layout.plan import TICKET_MASK
from corral.engine.pool.caller_time import Clock
from corral.engine.pool.fault_details import Witness
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.ledger import Ledger
from corral.engine.pool.lifecycle import BROKEN, Life
from corral.engine.pool.questions import Question
from corral.engine.pool.receive import Delivery
from corral.engine.pool.recovery import Mender
from corral.engine.pool.shared_process_check import Company
from corral.engine.worker.commands import Verb
from corral.engine.worker.letters import Letter, Reply
from corral.errors import CorralError, Fault, FaultError, WorkerDied, WorkerHung


@dataclass(slots=True, eq=False, repr=False)
class Line:
    """What a pool tells, asks and awaits of its workers, and of those that are gone."""

    life: Life
    executor: Executor
    ledger: Ledger
    inbox: Inbox
    clock: Clock
    witness: Witness
    company: Company
    delivery: Delivery
    mender: Mender | None
    _all_there: Callable[[], bool] = field(init=False)

    def __post_init__(self) -> None:
        self._all_there = partial(self.ledger.complete, self.executor.done)

    # Telling --------------------------------------------------------------------------

    def dispatch(self, slots: NDArray[np.intp], verb: Verb, mode: int) -> None:
        """Have these slots do it."""
        if self.mender is not None:
            self.mender.sent(slots, verb, mode)
        self.executor.send(slots, verb, mode)

    def dispatch_all(self, mode: int) -> None:
        """Have all slots take a step."""
        if self.mender is not None:
            self.mender.sent(None, Verb.STEP, mode)
        self.executor.send_all(mode)

    def address(self, slot: int) -> tuple[int, int]:
        """Whom to tell about a slot, and which it is to them."""
        return place_of(slot, self.executor.shards)

    def tell_each(self, messages: list[tuple[int, Any]], hold: bool = True) -> None:
        """Tell workers about slots; `hold` if it is about the command that follows."""
        if self.mender is None:
            with self._burying():
                self.executor.tell_each(messages)
            return
        if hold:
            for worker, message in messages:
                first = self.executor.shards[worker].start
                self.mender.told(first + message.index, message)
        while True:
            try:
                self.executor.tell_each(messages)
                return
            except WorkerDied as error:
                # Once more to the others: what they are told twice counts once.
                self._mend(error)

    def tell_all(self, message: Any) -> None:
        """Tell every worker."""
        for worker in range(len(self.executor.shards)):
            try:
                self.executor.tell(worker, message)
            except WorkerDied as error:
                if self.mender is None:
                    self._bury(error)
                self._mend(error)  # and is told when it has returned

    # Asking ---------------------------------------------------------------------------

    def ask(self, question: Question) -> None:
        """Put a question to every worker that it concerns."""
        self.ledger.asked += 1
        with self._burying(question):
            self.executor.ask(question.asks())

    def answers(self, question: Question, timeout: float | None) -> dict[int, Reply]:
        """What they say to that, by worker."""
        with self._burying(question):
            return self.executor.answers(question.by_worker, timeout)

    # Waiting --------------------------------------------------------------------------

    def reach(
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
        there = enough or self._all_there
        began = perf_counter()
        try:
            if self.mender is not None:
                some = enough is not None
                return self._reach_mending(self.mender, target, timeout, there, some)
            return self.executor.wait(target, timeout, there, enough is not None)
        except (WorkerDied, WorkerHung) as error:
            self._bury(error)
        finally:
            self.clock.waited(began)

    def _reach_mending(
        self,
        mender: Mender,
        target: int,
        timeout: float | None,
        there: Callable[[], bool],
        some: bool,
    ) -> bool:
        """The same, with workers replaced on the way."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            left = None if deadline is None else deadline - monotonic()
            try:
                mender.look(perf_counter())
                # Rings may be missing by then: do not wait for them.
                if mender.mended and there():
                    return True
                return self.executor.wait(target, left, there, some)
            except FaultError as error:
                self._mend(error)

    def letters(self, slots: NDArray[np.intp]) -> Sequence[Letter]:
        """What came beside the block; what these slots lost comes along."""
        if self.mender is None:
            try:
                return self.executor.letters()
            except (WorkerDied, WorkerHung) as error:
                self._bury(error)
        self.mender.taking(slots)
        while True:
            try:
                return self.executor.letters()
            except FaultError as error:  # of a worker that died while it wrote another
                self._mend(error)

    # Those who are gone ---------------------------------------------------------------

    def _mend(self, error: FaultError) -> None:
        """Have a worker replaced, or say that nothing can be done."""
        assert self.mender is not None
        try:
            self.mender.mend(error)
        except FaultError as final:
            self._bury(final)

    def _bury(self, error: FaultError, question: Question | None = None) -> NoReturn:
        """Say what a worker was doing, and serve no more."""
        self.life.state = BROKEN
        worker = error.fault.worker
        if worker is None:
            raise error
        fault = self.witness.gone(error.fault, worker, question)
        fault = self.company.suspected(fault)
        final = error_for(fault)
        self._add_what_arrived(final, fault)
        raise final from final.__cause__

    def _add_what_arrived(self, error: CorralError, fault: Fault) -> None:
        """Results that are there, of workers that are not to blame; waits for none."""
        for worker in range(len(self.executor.shards)):
            self.inbox.add(self.executor.last_letters(worker))
        ready = self.ledger.ready(self.executor.done)
        self.ledger.take(ready)
        others = self.delivery.faults(ready)
        error.faults = (fault, *others)
        error.step = self.delivery.without(ready, others)

    @contextmanager
    def _burying(self, question: Question | None = None) -> Iterator[None]:
        try:
            yield
        except (WorkerDied, WorkerHung) as error:
            worker = error.fault.worker
            if self.mender is None or worker is None:
                self._bury(error, question)
            # The pool goes on; what the question asked for is gone with the worker.
            told = error_for(self.witness.gone(error.fault, worker, question))
            self._mend(error)
            raise told from told.__cause__
