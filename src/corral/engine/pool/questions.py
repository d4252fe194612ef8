"""Asks envs (call, get_attr, set_attr, apply) by worker, and collects the answers.

ask ──► each worker that has any of the slots      (after the commands it has)
answers ◄── in the order of the question's slots, or one error for all that raised
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any

from corral.engine.executors.assign import worker_and_index
from corral.engine.faults.report import error_for, one_error_for
from corral.engine.layout.plan import RETIREMENT_STAGE
from corral.engine.pool.dispatch import Dispatcher
from corral.engine.pool.state import Payload, Question
from corral.engine.transport.mailbox import deadline_after
from corral.engine.worker.commands import Ask, next_question_number
from corral.errors import FaultError, OrderError


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
        shards = self.dispatcher.executor.shards
        by_worker: dict[int, list[int]] = {}
        for slot in slots:
            by_worker.setdefault(worker_and_index(slot, shards)[0], []).append(slot)
        question = Question(slots, by_worker, verb, payload, next_question_number())
        state = self.dispatcher.state
        state.question_count += 1
        state.asked_for_change = not reads
        state.change_count += state.asked_for_change
        self._ask_missing(question)
        return question

    def _ask_missing(self, question: Question) -> None:
        """Ask the workers that were not asked yet."""
        dispatcher, by_worker = self.dispatcher, question.by_worker
        questions, replaced = dispatcher.state.questions, dispatcher.recovery.replaced
        while missing := [one for one in by_worker if one not in question.asked]:
            messages = {worker: self._message(question, worker) for worker in missing}
            try:
                for worker in dispatcher.executor.each_asked(messages):
                    question.asked[worker] = replaced[worker]
                    questions[worker] = question
            except FaultError as error:
                self._recover(question, error)

    def _message(self, question: Question, worker: int) -> Ask:
        """What a worker is asked."""
        slots, shards = question.by_worker[worker], self.dispatcher.executor.shards
        indexes = tuple(slot - shards[worker].start for slot in slots)
        return Ask(question.verb, indexes, question.payload(slots), question.number)

    def _recover(self, question: Question, error: FaultError) -> None:
        """Replace a worker; raise its error if an answer is lost with it.

        Not lost are answers of a worker that was not asked, that could not be started
        again, or that has ended to be replaced: it is asked again.
        """
        worker, vitals = error.fault.worker, self.dispatcher.executor.control.vitals
        retired = worker is not None and vitals[worker, RETIREMENT_STAGE]
        fault = self.dispatcher.recover(error)
        assert worker is not None  # otherwise it was raised again
        asked = worker in question.by_worker and fault.kind != "start"
        if asked and not retired:
            lost = error_for(fault)
            raise lost from lost.__cause__
        question.asked.pop(worker, None)

    def answers(self, question: Question, timeout: float | None) -> tuple[Any, ...]:
        """Wait for the answers, in the order of the question's slots.

        A worker that is being replaced is waited for without the timeout.
        """
        self._check_asked(question)
        deadline = deadline_after(timeout)
        while True:
            try:
                replies = self.dispatcher.executor.answers(
                    question.by_worker, deadline - monotonic()
                )
                break
            except FaultError as error:
                self._recover(question, error)
            self._ask_missing(question)
        if replies is None:
            raise self._late(question, timeout)
        question.asked.clear()
        for worker in question.by_worker:
            self.dispatcher.state.questions.pop(worker, None)
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

    def _check_asked(self, question: Question) -> None:
        """Raise unless the answers can be waited for."""
        is_asked, number = self.dispatcher.executor.is_asked, question.number
        if all(is_asked(worker, number) for worker in question.by_worker):
            return
        if not question.asked:
            raise OrderError("these answers were taken already")
        times = self.dispatcher.recovery.replaced
        gone = [worker for worker, n in question.asked.items() if times[worker] != n]
        if gone:
            raise OrderError(
                f"these answers are lost: workers {gone} were replaced since they were "
                f"asked; ask again"
            )
        raise OrderError(
            "these answers are lost: their workers were asked something else since; "
            "take the answers to a question before you ask the next"
        )

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
