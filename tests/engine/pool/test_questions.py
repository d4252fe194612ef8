"""Questions to envs: who is asked what, the order of answers, and lost ones."""

from __future__ import annotations

import pytest
from scripted import SLOTS, Parts

from corral.engine.layout.plan import AFTER_STEP, RETIREMENT_STAGE
from corral.engine.pool.state import BROKEN, OPEN
from corral.engine.worker.letters import Reply
from corral.errors import EnvError, Fault, OrderError, WorkerDied


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def restarting() -> Parts:
    return Parts(on_fault="restart")


def asked(parts: Parts, *slots: int):
    """A question about these slots, which tells each worker of its own."""
    return parts.questions.ask("call", [*slots], tuple)


def test_each_worker_is_asked_once_and_answers_come_in_the_order_of_slots(parts):
    question = asked(parts, 3, 0, 2)
    told = [(w, one.indexes, one.payload) for w, one in parts.executor.said]
    assert told == [(1, (1, 0), (3, 2)), (0, (0,), (0,))]
    parts.executor.replies = {0: Reply(["zero"], []), 1: Reply(["three", "two"], [])}
    assert parts.questions.answers(question, None) == ("three", "zero", "two")
    with pytest.raises(OrderError, match="were taken already"):
        parts.questions.answers(question, None)


def test_answers_that_are_late_can_be_waited_for_again(parts):
    question = asked(parts, 3, 0, 2)
    parts.executor.replies = {0: Reply(["zero"], [])}
    late = r"slots \[3, 2\] have not answered call within 0.5 s; ask for the answers"
    with pytest.raises(TimeoutError, match=late):
        parts.questions.answers(question, 0.5)
    parts.executor.replies[1] = Reply(["three", "two"], [])
    assert parts.questions.answers(question, 0.5) == ("three", "zero", "two")


def test_answers_to_an_earlier_question_are_refused(parts):
    earlier = asked(parts, 0)
    asked(parts, 0, 1)
    with pytest.raises(
        OrderError, match="lost: their workers were asked something else"
    ):
        parts.questions.answers(earlier, None)


def test_envs_that_raise_when_asked_are_all_in_the_error(parts):
    question = asked(parts, *range(SLOTS))
    faults = [Fault("raised", "call", slot=s, worker=s // 2) for s in (1, 3)]
    parts.executor.replies = {w: Reply([], [faults[w]]) for w in (0, 1)}
    with pytest.raises(EnvError) as caught:
        parts.questions.answers(question, None)
    assert [fault.slot for fault in caught.value.faults] == [1, 3]
    assert caught.value.fault.episode.asked == ("call", (1,))


@pytest.mark.parametrize("late", [False, True])
def test_a_worker_that_ends_takes_its_answer_along_where_it_is_replaced_too(
    restarting, late
):
    parts = restarting
    question = asked(parts, 2) if late else None
    parts.executor.deaths = [1]
    with pytest.raises(WorkerDied) as caught:
        parts.questions.answers(question, None) if late else asked(parts, 2)
    assert caught.value.fault.worker == 1
    assert parts.executor.said[-1][:2] == ("replace", 1)
    assert parts.lifecycle.state == OPEN
    if late:
        with pytest.raises(
            OrderError, match=r"lost: workers \[1\] were replaced since"
        ):
            parts.questions.answers(question, None)


def test_a_worker_that_is_not_asked_may_end_meanwhile(restarting):
    parts = restarting
    parts.executor.deaths = [0]
    question = asked(parts, 2, 3)
    told = [one[:2] for one in parts.executor.said]
    assert told[0] == ("replace", 0) and [worker for worker, _ in told[1:]] == [1]
    parts.executor.replies = {1: Reply(["two", "three"], [])}
    assert parts.questions.answers(question, None) == ("two", "three")


def test_only_workers_that_were_not_asked_yet_are_asked_after_a_death(restarting):
    parts = restarting
    parts.executor.control.vitals[1, RETIREMENT_STAGE] = AFTER_STEP
    parts.executor.deaths = [None, 1]
    asked(parts, 0, 2)
    told = [worker for worker, *_ in parts.executor.said]
    assert told == [0, "replace", 1]


@pytest.mark.parametrize("late", [False, True])
def test_a_worker_that_has_ended_to_be_replaced_is_asked_again(restarting, late):
    parts = restarting
    question = asked(parts, 2, 0) if late else None
    parts.executor.control.vitals[1, RETIREMENT_STAGE] = AFTER_STEP
    parts.executor.deaths = [1]
    parts.executor.replies = {0: Reply(["zero"], []), 1: Reply(["two"], [])}
    question = question or asked(parts, 2, 0)
    assert parts.questions.answers(question, None) == ("two", "zero")
    told = [worker for worker, *_ in parts.executor.said]
    assert told == ([1, 0, "replace", 1] if late else ["replace", 1, 0])
    assert not parts.recovery.faults


def test_without_restarts_a_worker_that_ends_while_it_is_asked_breaks_the_pool(parts):
    parts.executor.deaths = [0]
    with pytest.raises(WorkerDied):
        asked(parts, 1)
    assert parts.lifecycle.state == BROKEN
