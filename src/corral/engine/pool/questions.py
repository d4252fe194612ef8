"""Questions to envs: asked of each worker that has any, answered slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.executors.contract import Executor
from corral.engine.faults.report import error_for, one_error_for
from corral.engine.pool.dispatch import Dispatcher
from corral.engine.pool.fault_details import FaultDetails
from corral.engine.pool.question import Question
from corral.engine.pool.state import PoolState
from corral.errors import OptionError, WorkerDied, WorkerHung


@dataclass(frozen=True, slots=True)
class Questions:
    """Puts questions to the envs of a pool, in between their commands."""

    state: PoolState
    executor: Executor
    dispatcher: Dispatcher
    fault_details: FaultDetails

    def ask(
        self, verb: str, slots: list[int], payload: Callable[[list[int]], Any]
    ) -> Question:
        """Ask one question per worker that has any of the slots, and go on."""
        question = Question.about(slots, self.executor.shards, verb, payload)
        self.state.question_count += 1
        with self._losing_the_answer(question):
            self.executor.ask(question.messages())
        return question

    def answers(self, question: Question, timeout: float | None) -> tuple[Any, ...]:
        """Wait for the answers, in the order of the question's slots."""
        with self._losing_the_answer(question):
            replies = self.executor.answers(question.by_worker, timeout)
        faults = [
            self.fault_details.of_exception(fault, question.question_to(fault.slot))
            for reply in replies.values()
            for fault in reply.faults
        ]
        if faults:
            error = one_error_for(faults)
            raise error from error.__cause__
        return question.answers(replies)

    def set_attr(self, name: str, values: Any, slots: NDArray[np.intp]) -> None:
        """Set an attribute; a list or tuple has one value per slot."""
        if not isinstance(values, (list, tuple)):
            values = [values] * len(slots)
        if len(values) != len(slots):
            raise OptionError(
                "Values must be a list or tuple with length equal to the number of "
                f"environments. Got `{len(values)}` values for {len(slots)} "
                "environments."
            )
        at = dict(zip(slots.tolist(), values, strict=True))
        question = self.ask(
            "set_attr", slots.tolist(), lambda part: (name, [at[one] for one in part])
        )
        self.answers(question, None)

    @contextmanager
    def _losing_the_answer(self, question: Question) -> Iterator[None]:
        """A worker that ends takes the answer along, also where the pool goes on."""
        try:
            yield
        except (WorkerDied, WorkerHung) as error:
            worker, dispatcher = error.fault.worker, self.dispatcher
            if dispatcher.recovery is None or worker is None:
                dispatcher.raise_worker_gone(error, question)
            lost = error_for(
                self.fault_details.of_dead_worker(error.fault, worker, question)
            )
            dispatcher.recover(error)
            raise lost from lost.__cause__
