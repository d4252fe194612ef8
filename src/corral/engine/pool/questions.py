"""Asks envs (call, get_attr, set_attr, apply) by worker, and collects the answers.

ask ──► each worker that has any of the slots      (after the commands it has)
answers ◄── in the order of the question's slots, or one error for all that raised
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from corral.engine.executors.assign import worker_and_index
from corral.engine.faults.report import error_for, one_error_for
from corral.engine.pool.dispatch import Dispatcher
from corral.engine.pool.fault_details import Asked
from corral.engine.worker.commands import Ask, next_question_number
from corral.errors import FaultError, OrderError, WorkerDied, WorkerHung

# Makes what a worker is asked from its slots.
Payload = Callable[[list[int]], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A question that was asked and not yet answered.

    Attributes:
        slots: In the order of the answers.
        by_worker: Those of the slots that each worker runs.
        number: See `commands.Ask`.
    """

    slots: list[int]
    by_worker: dict[int, list[int]]
    verb: str
    payload: Payload
    number: int

    def to(self, slot: int | None) -> Asked | None:
        """What one slot was asked, if it was."""
        return (self.verb, self.payload([slot])) if slot in self.slots else None


@dataclass(frozen=True, slots=True, eq=False)
class Questions:
    """Asks the workers of a pool, and puts their answers together."""

    dispatcher: Dispatcher

    def ask(
        self, verb: str, slots: list[int], payload: Payload, reads: bool = False
    ) -> Question:
        """Ask one question per worker that has any of the slots; do not wait.

        `reads`: whether it leaves the envs as they are.
        """
        executor = self.dispatcher.executor
        by_worker: dict[int, list[int]] = {}
        indices: dict[int, list[int]] = {}
        for slot in slots:
            worker, index = worker_and_index(slot, executor.shards)
            by_worker.setdefault(worker, []).append(slot)
            indices.setdefault(worker, []).append(index)
        number = next_question_number()
        question = Question(slots, by_worker, verb, payload, number)
        messages = {
            worker: Ask(verb, tuple(indices[worker]), payload(some), number)
            for worker, some in by_worker.items()
        }
        state = self.dispatcher.state
        state.question_count += 1
        state.asked_for_change = not reads
        state.change_count += state.asked_for_change
        with self._losing_the_answer(question):
            executor.ask(messages)
        return question

    def answers(self, question: Question, timeout: float | None) -> tuple[Any, ...]:
        """Wait for the answers, in the order of the question's slots."""
        executor, number = self.dispatcher.executor, question.number
        if not all(executor.is_asked(worker, number) for worker in question.by_worker):
            raise OrderError(
                "these answers were taken already, or their workers were asked "
                "something else since, or replaced; take the answers to a question "
                "before you ask the next"
            )
        try:
            with self._losing_the_answer(question):
                replies = executor.answers(question.by_worker, timeout)
        except FaultError:
            raise
        except TimeoutError:
            raise self._late(question, timeout) from None
        completed = self.dispatcher.fault_details.of_exception
        faults = [
            completed(fault, question.to(fault.slot))
            for reply in replies.values()
            for fault in reply.faults
        ]
        if faults:
            raise one_error_for(faults)
        answers: dict[int, Any] = {}
        for worker, slots in question.by_worker.items():
            answers.update(zip(slots, replies[worker].values, strict=True))
        return tuple(answers[slot] for slot in question.slots)

    def _late(self, question: Question, timeout: float | None) -> TimeoutError:
        """The error where some answers are missing, which may still arrive."""
        here = self.dispatcher.executor.answered(question.by_worker)
        late = [
            slot
            for worker, slots in question.by_worker.items()
            for slot in slots
            if worker not in here
        ]
        return TimeoutError(
            f"slots {late} have not answered {question.verb} within {timeout:g} s; "
            "ask for the answers again to wait longer"
        )

    @contextmanager
    def _losing_the_answer(self, question: Question) -> Iterator[None]:
        """A worker that ends takes its answer along, even where it is replaced."""
        try:
            yield
        except (WorkerDied, WorkerHung) as error:
            asked = question.to(error.fault.slot)
            details = self.dispatcher.fault_details
            fault = details.of_dead_worker(error.fault, asked)
            self.dispatcher.recover(error, asked)
            lost = error_for(replace(fault, replaced=True))
            raise lost from lost.__cause__
