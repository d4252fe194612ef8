"""The dispatcher: what workers are told, and what it does when one is gone."""

from __future__ import annotations

import numpy as np
import pytest
from scripted import SLOTS, Parts

from corral.engine.layout.plan import WORD_MASK
from corral.engine.pool.state import BROKEN, OPEN, SENDING
from corral.engine.worker.commands import WIDE_ACTIONS, Verb
from corral.engine.worker.letters import Letter
from corral.errors import Fault, WorkerDied


@pytest.fixture
def parts() -> Parts:
    return Parts()


@pytest.fixture
def restarting() -> Parts:
    return Parts(on_fault="restart")


def test_a_step_of_all_slots_is_one_command_and_one_row_of_actions(parts):
    parts.step_all(first=3.0)
    assert parts.executor.said == [("all", 0)]
    assert parts.state.waiting == SLOTS
    assert [float(parts.actions.last(s, 1, 1)[0][0]) for s in range(SLOTS)] == [
        *(3.0, 4.0, 5.0, 6.0)
    ]


def test_slots_on_different_tickets_get_their_actions_in_rows_of_their_own(parts):
    slot = np.array([2])
    parts.dispatcher.step(slot, [np.full((1, 1), 7, np.float32)], 0)
    parts.finish(2)
    parts.receiver.take(slot, True, False)
    parts.step_all()
    assert float(parts.actions.last(2, 2, 1)[0][0]) == 2.0
    assert float(parts.actions.last(2, 1, 1)[0][0]) == 7.0
    assert float(parts.actions.last(0, 1, 1)[0][0]) == 0.0


def test_wide_actions_are_part_of_the_command_and_of_what_is_sent_again(parts):
    parts.dispatcher.step_all([np.full((SLOTS, 1), 0.1)], 1)
    assert parts.executor.said == [("all", 1 | WIDE_ACTIONS)]
    assert parts.state.command(3) == (Verb.STEP, 1 | WIDE_ACTIONS)


def test_a_send_that_is_interrupted_leaves_a_pool_that_only_closes(parts, monkeypatch):
    def interrupted(mode: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(parts.executor, "send_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        parts.step_all()
    assert parts.lifecycle.state == SENDING


def test_a_pool_that_a_signal_handler_closed_while_sending_stays_closed(
    parts, monkeypatch
):
    monkeypatch.setattr(
        parts.executor, "send_all", lambda mode: parts.lifecycle.close()
    )
    parts.step_all()
    assert parts.lifecycle.state == "closed"


def test_a_worker_that_dies_breaks_the_pool_and_leaves_what_others_finished(parts):
    parts.reset()
    parts.step_all()
    parts.finish(2, 3)
    parts.executor.deaths = [0]
    with pytest.raises(WorkerDied) as caught:
        parts.dispatcher.wait(SLOTS, None)
    assert parts.lifecycle.state == BROKEN
    assert caught.value.step.slots.tolist() == [2, 3]
    assert caught.value.step.reward.tolist() == [22.0, 23.0]
    assert caught.value.fault.slot == 0


def test_an_env_that_raised_beside_a_dead_worker_is_among_the_faults(parts):
    parts.reset()
    parts.step_all()
    parts.finish(2, 3)
    raised = Fault(kind="raised", command="step", slot=3, worker=1)
    parts.executor.inbox = [Letter(3, fault=raised)]
    parts.executor.deaths = [0]
    with pytest.raises(WorkerDied) as caught:
        parts.dispatcher.wait(SLOTS, None)
    assert [fault.slot for fault in caught.value.faults] == [0, 3]
    assert caught.value.step.slots.tolist() == [2]


def test_workers_that_ended_in_one_batch_are_each_among_the_faults(parts):
    parts.reset()
    parts.step_all()
    parts.executor.ended = [
        Fault(kind="died", command="step", worker=worker, pid=1) for worker in (0, 1)
    ]
    parts.executor.deaths = [1]
    with pytest.raises(WorkerDied) as caught:
        parts.dispatcher.wait(SLOTS, None)
    assert [fault.worker for fault in caught.value.faults] == [1, 0]
    assert [fault.slot for fault in caught.value.faults] == [2, 0]


def test_with_restarts_the_worker_is_replaced_and_the_wait_goes_on(restarting):
    parts = restarting
    parts.reset()
    parts.step_all()
    parts.finish(*range(SLOTS))
    parts.executor.deaths = [1]
    parts.dispatcher.wait(SLOTS, None)
    assert parts.executor.said[-1] == ("replace", 1, [2, 2])
    assert parts.lifecycle.state == OPEN
    # All results are there: it does not wait for a ring that may never come.
    assert len(parts.executor.waits) == 1


def test_messages_are_posted_once_more_to_those_that_are_left(restarting):
    parts = restarting
    parts.reset()
    parts.executor.deaths = [0]
    parts.dispatcher.reset(np.array([3]), [5], {3: {"options": {"hard": True}}})
    posted = [one for one in parts.executor.said if one[0] == 1]
    assert len(posted) == 1 and posted[0][1].options == {"hard": True}
    assert parts.state.messages[3] == [posted[0][1]]
    assert parts.executor.said[-1] == ([3], "RESET", 0)


def test_a_worker_that_is_gone_keeps_new_columns_from_no_other(parts):
    """Results are being received; the next wait tells of the worker."""
    parts.executor.deaths = [0]
    parts.dispatcher.announce_columns([])
    assert [worker for worker, _ in parts.executor.said] == [1]
    assert parts.lifecycle.state == OPEN


def test_nothing_is_remembered_of_messages_where_no_worker_is_replaced(parts):
    parts.dispatcher.reset(np.array([3]), [5], {3: {"task": "push"}})
    assert parts.state.messages == {}
    assert parts.executor.control.reset_seed.tolist() == [0, 0, 0, 5]


def test_a_task_given_ahead_belongs_to_no_command(restarting):
    restarting.dispatcher.assign(1, "push")
    assert restarting.state.messages == {}
    assert restarting.state.assigned == {1: (0, "push")}


def test_waiting_counts_as_waiting_also_when_it_fails(parts, monkeypatch):
    now = iter([5.0, 7.5])
    monkeypatch.setattr("corral.engine.pool.dispatch.perf_counter", lambda: next(now))
    parts.step_all()
    parts.executor.deaths = [0]
    with pytest.raises(WorkerDied):
        parts.dispatcher.wait(SLOTS, None)
    assert parts.state.waiting_seconds == 2.5


def test_a_wait_counts_the_rings_of_all_results_since_the_start(parts):
    parts.state.taken = WORD_MASK - 5
    parts.reset()  # four
    for slots in ([2], [3]):
        parts.dispatcher.step(np.array(slots), [np.zeros((1, 1), np.float32)], 0)
        parts.finish(*slots)
        parts.dispatcher.wait(1, None)
        parts.receiver.take(np.array(slots), True, False)
    for _ in range(2):
        parts.step_all()
        parts.finish(*range(SLOTS))
        parts.dispatcher.wait(SLOTS, None)
        parts.receiver.take(None, True, False)
    assert [target for target, _ in parts.executor.waits] == [WORD_MASK, 0, 4, 8]


def test_a_wait_that_begins_anew_has_the_rest_of_its_time(restarting, monkeypatch):
    parts = restarting
    clock = "corral.engine.pool.dispatch.perf_counter"
    monkeypatch.setattr(clock, lambda: 5.0 + 4.0 * len(parts.executor.waits))
    parts.step_all()
    parts.executor.deaths = [0, 1]
    assert not parts.dispatcher.wait(SLOTS, 10.0)
    assert [left for _, left in parts.executor.waits] == [10.0, 6.0, 2.0]
    assert parts.state.waiting_seconds == 12.0
