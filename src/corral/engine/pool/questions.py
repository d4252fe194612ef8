"""Questions to envs: asked of each worker that has any, answered slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from corral.engine.executors.assign import worker_and_index
from corral.engine.executors.contract import Executor
from corral.engine.faults.report import error_for, one_error_for
from corral.engine.pool.dispatch import Dispatcher
from corral.engine.pool.fault_details import FaultDetails
from corral.engine.pool.state import PoolState
from corral.engine.worker.commands import Ask
from corral.errors import WorkerDied, WorkerHung


@dataclass(frozen=True, slots=True)
class Question:
    """A question that was asked and not yet answered."""

    slots: list[int]
    """In the order of the answers."""
    by_worker: dict[int, list[int]]
    """Those of the slots that each worker runs."""
    verb: str
    payload: Callable[[list[int]], Any]
    """Makes what a worker is asked from its slots."""

    def to(self, slot: int | None) -> tuple[str, Any] | None:
        """What one slot was asked."""
        return None if slot is None else (self.verb, self.payload([slot]))


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks the envs of a pool, in between their commands."""

    state: PoolState
    executor: Executor
    dispatcher: Dispatcher
    fault_details: FaultDetails

    def ask(
        self, verb: str, slots: list[int], payload: Callable[[list[int]], Any]
    ) -> Question:
        """Ask one question per worker that has any of the slots; do not wait."""
        shards = self.executor.shards
        by_worker: dict[int, list[int]] = {}
        for slot in slots:
            worker, _ = worker_and_index(slot, shards)
            by_worker.setdefault(worker, []).append(slot)
        question = Question(slots, by_worker, verb, payload)
        messages = {}
        for worker, members in by_worker.items():
            indexes = tuple(slot - shards[worker].start for slot in members)
            messages[worker] = Ask(verb, indexes, payload(members))
        self.state.question_count += 1
        with self._losing_the_answer(question):
            self.executor.ask(messages)
        return question

    def answers(self, question: Question, timeout: float | None) -> tuple[Any, ...]:
        """Wait for the answers, in the order of the question's slots."""
        with self._losing_the_answer(question):
            replies = self.executor.answers(question.by_worker, timeout)
        faults = [
            self.fault_details.of_exception(fault, question.to(fault.slot))
            for reply in replies.values()
            for fault in reply.faults
        ]
        if faults:
            error = one_error_for(faults)
            raise error from error.__cause__
        answers = {
            slot: value
            for worker, slots in question.by_worker.items()
            for slot, value in zip(slots, replies[worker].values, strict=True)
        }
        return tuple(answers[slot] for slot in question.slots)

    @contextmanager
    def _losing_the_answer(self, question: Question) -> Iterator[None]:
        """A worker that ends takes its answer along, even where it is replaced."""
        try:
            yield
        except (WorkerDied, WorkerHung) as error:
            worker, dispatcher = error.fault.worker, self.dispatcher
            if dispatcher.recovery is None or worker is None:
                dispatcher.raise_worker_gone(error, question.to(error.fault.slot))
            asked = question.to(error.fault.slot)
            details = self.fault_details
            lost = error_for(details.of_dead_worker(error.fault, worker, asked))
            dispatcher.recover(error)
            raise lost from lost.__cause__
