"""The receiver: rows of the block and letters become a Step."""

from __future__ import annotations

import numpy as np
import pytest
from scripted import SLOTS, Parts

from corral.engine.layout.plan import Tickets
from corral.engine.worker.info_writer import InfoWriter
from corral.engine.worker.letters import Letter
from corral.errors import EnvError, Fault, OrderError, StaleViewError


@pytest.fixture
def parts() -> Parts:
    made = Parts()
    made.reset()
    return made


def stepped(parts: Parts, copy: bool):
    parts.step_all()
    parts.finish(*range(SLOTS))
    return parts.receiver.take(None, copy, False)


def test_every_other_step_of_views_is_the_same_object(parts):
    first, second = stepped(parts, copy=False), stepped(parts, copy=False)
    assert second is not first
    assert first.obs.ravel().tolist() == [2.0] * SLOTS  # still intact
    assert stepped(parts, copy=False) is first
    assert first.obs.ravel().tolist() == [4.0] * SLOTS


def test_a_copy_keeps_its_numbers_whatever_is_written_later(parts):
    first = stepped(parts, copy=True)
    for _ in range(2):
        stepped(parts, copy=True)
    assert first.obs.ravel().tolist() == [2.0] * SLOTS
    assert first.reward.tolist() == [20.0, 21.0, 22.0, 23.0]


def test_slots_on_different_tickets_are_read_from_their_own_rows(parts):
    ahead = np.array([1])
    parts.dispatcher.step(ahead, [np.zeros((1, 1), np.float32)], 0)
    parts.finish(1)
    parts.receiver.take(ahead, True, False)
    parts.step_all()
    parts.finish(*range(SLOTS))
    step = parts.receiver.take(parts.state.all, True, False)
    assert step.obs.ravel().tolist() == [2.0, 3.0, 2.0, 2.0]
    assert step.reward.tolist() == [20.0, 31.0, 22.0, 23.0]


@pytest.mark.parametrize(
    ("slots", "viewed"), [([0, 1], True), ([2, 3], True), ([1, 2], False), ([0], False)]
)
def test_a_whole_shard_is_a_view_and_anything_else_is_gathered(parts, slots, viewed):
    parts.step_all()
    parts.finish(*range(SLOTS))
    step = parts.receiver.take(np.array(slots), False, False)
    assert np.shares_memory(step.obs, parts.views.obs[0]) == viewed
    assert step.slots.tolist() == slots


def test_a_fault_is_raised_with_the_results_of_the_others(parts):
    parts.step_all()
    parts.finish(*range(SLOTS))
    fault = Fault(kind="raised", command="step", slot=2, worker=1)
    parts.executor.inbox = [Letter(2, fault=fault)]
    with pytest.raises(EnvError) as caught:
        parts.receiver.take(None, True, False)
    assert caught.value.step.slots.tolist() == [0, 1, 3]
    assert caught.value.step.reward.tolist() == [20.0, 21.0, 23.0]
    assert parts.state.waiting == 0
    with pytest.raises(OrderError, match=r"slots \[2\] have not been reset"):
        parts.state.check_sendable(parts.state.all, started=True)


@pytest.mark.parametrize("began_anew", [True, False])
def test_a_fault_that_was_not_told_is_void_once_another_episode_began(
    parts, began_anew
):
    parts.step_all()
    fault = Fault(kind="raised", command="step", slot=2, worker=1)
    late = Letter(2, fault=fault, ticket=parts.state.tickets.word(2))
    parts.state.take_all()  # Ctrl-C: the caller has got neither this nor the next
    if began_anew:
        parts.dispatcher.reset(parts.state.all, [-1] * SLOTS, {})
        parts.state.take(parts.state.all)
    parts.step_all()
    parts.finish(*range(SLOTS))
    parts.executor.inbox = [late]
    if began_anew:
        assert parts.receiver.take(None, True, False).valid.all()
    else:
        with pytest.raises(EnvError):
            parts.receiver.take(None, True, False)


def test_what_a_worker_wrote_about_one_command_is_void_once_there_is_another(parts):
    tickets = Tickets(SLOTS)
    tickets.base = parts.state.tickets.of(0)  # the worker counts alike
    columns, send = parts.inbox.columns, parts.executor.inbox.append
    writer = InfoWriter(
        *(range(SLOTS), "all", False, columns, bytearray(SLOTS)),
        *(None, lambda: None, send, tickets),
    )

    def step(name: str, *slots: int) -> None:
        parts.step_all()
        tickets.base += 1
        for slot in slots:
            writer.write(slot, 0, {"name": name})
        writer.post()

    step("late", 2, 3)
    parts.state.take_all()  # Ctrl-C: the caller has not got these
    step("new", 1, 3)
    parts.finish(*range(SLOTS))
    infos = parts.receiver.take(None, True, False).infos.to_list(SLOTS)
    assert infos == [{}, {"name": "new"}, {}, {"name": "new"}]


def test_a_worker_that_died_while_it_wrote_is_replaced_and_results_are_taken():
    parts = Parts(on_fault="restart")
    parts.reset()
    parts.step_all()
    parts.finish(*range(SLOTS))
    parts.executor.deaths = [1]
    step = parts.receiver.take(None, True, False)
    assert step.reward.tolist() == [20.0, 21.0, 22.0, 23.0]
    assert parts.executor.said[-1] == ("replace", 1, [2, 2])


def test_an_env_that_its_worker_has_built_again_is_a_restart(parts):
    parts.step_all()
    parts.finish(*range(SLOTS))
    fault = Fault(kind="raised", command="step", slot=2, worker=1)
    parts.executor.inbox = [Letter(2, restarted=fault)]
    step = parts.receiver.take(None, True, False)
    (kept,) = parts.recovery.take_faults()
    assert (kept.slot, parts.recovery.count) == (2, 1)
    assert step.infos.to_list(SLOTS)[2] == {"fault": kept}


def test_a_letter_waits_for_the_slot_that_it_is_about(parts):
    parts.step_all()
    parts.finish(*range(SLOTS))
    parts.executor.inbox = [Letter(3, info={"name": "late"})]
    step = parts.receiver.take(np.array([0, 1]), True, False)
    assert step.infos.to_list(2) == [{}, {}]
    step = parts.receiver.take(np.array([2, 3]), True, False)
    assert step.infos.to_list(2) == [{}, {"name": "late"}]
    assert not parts.inbox.letters


def test_the_info_of_an_end_that_a_beginning_followed_is_a_final_info(parts):
    parts.step_all()
    parts.finish(*range(SLOTS))
    row = parts.state.tickets.base & 1
    parts.views.record["terminated"][row, 1] = True
    parts.views.record["started"][row, 1] = True
    parts.executor.inbox = [Letter(1, info={"new": "a"}, final_info={"old": "b"})]
    step = parts.receiver.take(None, True, False)
    assert step.final_infos == {1: {"old": "b"}}
    assert step.infos.to_list(SLOTS)[1] == {"new": "a"}


def test_a_number_in_a_letter_becomes_a_column_that_all_workers_are_told_of(parts):
    parts.step_all()
    parts.finish(*range(SLOTS))
    parts.executor.said.clear()
    parts.executor.inbox = [Letter(0, info={"score": 1.5})]
    parts.receiver.take(None, True, False)
    assert [worker for worker, _ in parts.executor.said] == [0, 1]
    (column,) = parts.executor.said[0][1].columns
    assert column.path == ("score",)


def test_in_debug_mode_a_view_that_is_kept_too_long_is_an_error(parts):
    parts.step_all()
    parts.finish(*range(SLOTS))
    step = parts.receiver.take(None, False, True)
    kept = step.obs
    rows = parts.state.tickets_of(parts.state.all) & 1
    with pytest.raises(StaleViewError, match="still holds a view"):
        parts.receiver.stale_views.expire(parts.state.all, rows)
    assert not np.array_equal(kept.ravel(), [2.0] * SLOTS)
