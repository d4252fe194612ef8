"""Recovery: what a replaced worker is told, and what its slots lose."""

from __future__ import annotations

import numpy as np
import pytest
from scripted import SLOTS, Parts

from corral.engine.layout.plan import (
    AFTER_STEP,
    BEGIN_TICKET,
    EPISODE_NUMBER,
    RETIREMENT_STAGE,
    WORD_MASK,
)
from corral.engine.worker.commands import NewColumns, NewRootSeed, NextEpisode
from corral.engine.worker.letters import Letter
from corral.engine.worker.record import HAS_INFOS, NEXT_EPISODE_DUE
from corral.errors import EpisodeRecord, Fault, WorkerDied, WorkerHung

# Tickets before the first reset: the step after it has number 2, or 0 as a word of the
# block, or 2 again.
BASES = [0, WORD_MASK - 1, 2**32]


@pytest.fixture(params=BASES)
def parts(request: pytest.FixtureRequest) -> Parts:
    made = Parts(request.param, on_fault="restart", max_restarts=2)
    made.reset()
    return made


def died(worker: int) -> WorkerDied:
    return WorkerDied("died", Fault(kind="died", command="step", worker=worker))


def restarts_told(parts: Parts, *slots: int) -> dict[int, str]:
    """The kinds of the faults that the next rows of these slots tell of."""
    parts.recovery.before_results(np.array(slots))
    told = {slot: parts.inbox.letters.pop(slot, None) for slot in slots}
    return {slot: one.restarted.kind for slot, one in told.items() if one}


def test_what_was_under_way_is_sent_again_with_its_own_command(parts):
    parts.dispatcher.reset(np.array([0]), [7], {0: {"options": {"hard": True}}})
    parts.dispatcher.step(np.array([1]), [np.zeros((1, 1), np.float32)], 2)
    parts.executor.said.clear()
    parts.recovery.recover(died(0))
    parts.executor.on_return(0)
    told = parts.executor.said[1:]
    assert isinstance(told[0][1], NewColumns)
    assert told[1] == (0, NextEpisode(0, options={"hard": True}))
    assert told[2:] == [([0], "RESET", 0), ([1], "STEP", 2)]


def test_a_slot_that_was_done_is_not_sent_to_again(parts):
    parts.step_all()
    parts.finish(1)
    parts.executor.said.clear()
    parts.recovery.recover(died(0))
    parts.executor.on_return(0)
    assert parts.executor.said[-1] == ([0], "STEP", 0)


def test_a_task_that_no_episode_began_with_is_told_again(parts):
    parts.dispatcher.assign(1, "push")
    parts.step_all()
    parts.executor.said.clear()
    parts.recovery.recover(died(0))
    parts.executor.on_return(0)
    assert (0, NextEpisode(1, task="push")) in parts.executor.said


def test_a_task_that_an_episode_has_begun_with_is_not_told_again(parts):
    parts.dispatcher.assign(1, "push")
    parts.step_all()
    parts.finish(1)
    parts.views.record["started"][parts.state.tickets.of(1) & 1, 1] = True
    parts.recovery.recover(died(0))
    parts.executor.said.clear()
    parts.executor.on_return(0)
    assert [type(message) for worker, message, *_ in parts.executor.said[:-1]] == [
        NewColumns
    ]
    assert parts.executor.said[-1] == ([0], "STEP", 0)


@pytest.mark.parametrize("begun", [True, False])
def test_episodes_are_counted_on_unless_none_of_the_root_seed_has_begun(parts, begun):
    """Otherwise the seeds of its first episodes would be drawn again."""
    parts.executor.control.episode[:, EPISODE_NUMBER] = 4
    parts.recovery.set_root_seed(9)
    if begun:
        parts.reset()
    parts.step_all()
    parts.recovery.recover(died(0))
    numbers = parts.executor.control.episode[:, EPISODE_NUMBER].tolist()
    assert numbers == ([4, 4, 4, 4] if begun else [-1, -1, 4, 4])
    parts.executor.said.clear()
    parts.executor.on_return(0)  # its options have the seed
    assert not any(isinstance(one[1], NewRootSeed) for one in parts.executor.said)


def test_a_worker_may_be_ahead_of_the_pool_when_its_seeds_are_counted_on(parts):
    """A site has stepped its slots, and what it sent is not counted yet."""
    parts.recovery.set_root_seed(9)
    parts.executor.control.episode[:, EPISODE_NUMBER] = 4
    parts.state.done += np.uint32(3)
    parts.recovery.recover(died(0))
    assert parts.executor.control.episode[:2, EPISODE_NUMBER].tolist() == [4, 4]


def test_a_root_seed_set_while_it_was_away_is_told(parts):
    parts.step_all()
    parts.recovery.recover(died(1))
    parts.recovery.set_root_seed(9)
    parts.executor.said.clear()
    parts.executor.on_return(1)
    assert (1, NewRootSeed(9)) in parts.executor.said


def test_every_slot_of_the_worker_is_told_why_with_its_next_row(parts):
    parts.step_all()
    parts.recovery.recover(died(0))
    parts.finish(*range(SLOTS))
    assert restarts_told(parts, *range(SLOTS)) == {0: "died", 1: "shardmate"}


def test_a_row_that_was_finished_before_tells_of_no_loss_and_the_next_one_does(parts):
    parts.step_all()
    parts.finish(1)
    parts.recovery.recover(died(0))
    parts.finish(0)
    assert restarts_told(parts, 0, 1) == {0: "died"}
    parts.receiver.take(np.array([0, 1]), True, False)
    parts.dispatcher.step(np.array([1]), [np.zeros((1, 1), np.float32)], 0)
    assert restarts_told(parts, 0, 1) == {1: "shardmate"}


def test_a_replacement_that_ends_before_it_began_loses_nothing_more(parts):
    parts.step_all()
    first = parts.recovery.recover(died(0))
    parts.recovery.recover(died(0))
    parts.finish(*range(SLOTS))
    infos = parts.receiver.take(None, True, False).infos.to_list(SLOTS)
    assert infos[0] == {"fault": first} and infos[1]["fault"].kind == "shardmate"
    parts.step_all()
    parts.finish(*range(SLOTS))
    infos = parts.receiver.take(None, True, False).infos.to_list(SLOTS)
    assert infos == [{}] * SLOTS


def test_a_loss_is_forgotten_once_a_site_has_stepped_past_it(parts):
    parts.recovery.recover(died(0))
    parts.recovery.forget_lost()  # no row since
    assert parts.recovery.lost_in(range(0, 2)).keys() == {0, 1}
    done = parts.state.done[1:2] + np.uint32(1)
    parts.state.catch_up(done.astype(np.int64), np.array([True]), first=1)
    parts.recovery.forget_lost()
    assert parts.recovery.lost_in(range(0, 2)).keys() == {0}
    parts.step_all()
    assert restarts_told(parts, 0, 1) == {0: "shardmate"}


def test_a_reset_that_a_worker_died_in_is_no_step(parts):
    parts.executor.control.episode[:, BEGIN_TICKET] = parts.state.tickets.word(0)
    parts.dispatcher.reset(np.array([0]), [-1], {})
    fault = parts.recovery.recover(died(0))
    assert (fault.slot, fault.command, fault.step) == (0, "reset", 0)


def test_the_worker_of_a_finished_step_begins_the_next_episodes(parts):
    """It ended to be replaced after the step, before it marked that as done."""
    parts.executor.control.vitals[0, RETIREMENT_STAGE] = AFTER_STEP
    parts.step_all()
    parts.executor.inbox = [Letter(1, info={"b": 2})]
    parts.recovery.recover(died(0))
    assert parts.executor.resumed[0].care == bytes([HAS_INFOS | NEXT_EPISODE_DUE] * 2)
    assert parts.inbox.letters.keys() == {1}


@pytest.mark.parametrize("began", [2**32 - 1, 2**32, 2**32 + 1])
def test_episodes_are_counted_with_whichever_ticket_they_began(began: int) -> None:
    parts = Parts(began - 1, on_fault="restart")
    parts.executor.control.episode[:, BEGIN_TICKET] = began & WORD_MASK
    parts.reset()
    parts.step_all()
    fault = parts.recovery.recover(died(0))
    assert (fault.slot, fault.others) == (0, 1)


def test_an_episode_that_a_site_began_counts_before_its_tickets_are_known() -> None:
    parts = Parts(2**32 - 3)
    assert not parts.state.has_begun(0, 0)
    parts.state.done += np.uint32(4)
    assert parts.state.has_begun(0, 0)


def test_an_episode_that_was_over_is_not_lost_with_its_worker(parts):
    row = parts.state.tickets.of(1) & 1
    parts.views.record["terminated"][row, 1] = True
    parts.step_all()
    parts.recovery.recover(died(0))
    parts.finish(0, 1)
    parts.recovery.before_results(np.array([0, 1]))
    assert parts.inbox.letters.keys() == {0}


def test_letters_about_results_that_were_never_finished_are_void(parts):
    parts.step_all()
    parts.finish(0)
    parts.executor.inbox = [Letter(0, info={"a": 1}), Letter(1, info={"b": 2})]
    parts.recovery.recover(died(0))
    assert parts.inbox.letters.keys() == {0}


def test_the_error_is_final_when_the_budget_is_spent(parts):
    for _ in range(2):
        parts.step_all()
        parts.recovery.recover(died(0))
        parts.finish(*range(SLOTS))
        parts.receiver.take(None, True, False)
    parts.step_all()
    with pytest.raises(WorkerDied) as caught:
        parts.recovery.recover(died(0))
    assert caught.value.fault.gave_up and caught.value.fault.restarts == 2
    assert parts.recovery.count == 2


def test_envs_that_workers_have_built_again_spend_the_same_budget(parts):
    for _ in range(2):
        parts.recovery.env_rebuilt(Fault("raised", "step", slot=0, worker=0))
    parts.step_all()
    with pytest.raises(WorkerDied) as caught:
        parts.recovery.recover(died(0))
    assert caught.value.fault.restarts == 2


@pytest.mark.parametrize(
    ("on_fault", "on_timeout", "error"),
    [("restart", "raise", WorkerHung), ("raise", "restart", WorkerDied)],
)
def test_workers_that_die_and_workers_that_hang_are_replaced_each_by_its_own_option(
    on_fault, on_timeout, error
):
    parts = Parts(on_fault=on_fault, on_timeout=on_timeout)
    parts.reset()
    parts.step_all()
    hung = WorkerHung("hung", Fault(kind="hung", command="step", worker=1))
    final, replaced = (hung, died(0)) if error is WorkerHung else (died(0), hung)
    with pytest.raises(error):
        parts.recovery.recover(final)
    assert parts.executor.said == [("all", 0)]
    assert parts.recovery.recover(replaced).kind == replaced.fault.kind


def test_a_worker_that_makes_room_costs_no_budget_and_no_episode(parts):
    for _ in range(5):
        parts.executor.control.vitals[:, RETIREMENT_STAGE] = 1
        parts.step_all()
        parts.recovery.recover(died(0))
        parts.finish(*range(SLOTS))
        step = parts.receiver.take(None, True, False)
        assert step.infos.to_list(SLOTS) == [{}] * SLOTS
    assert parts.recovery.count == 0


def test_the_hook_hears_of_a_restart_at_once(parts):
    heard: list[Fault] = []
    parts.recovery.on_restart = heard.append
    parts.step_all()
    parts.recovery.recover(died(1))
    assert [fault.slot for fault in heard] == [2]
    assert list(parts.recovery.faults) == heard


def test_of_many_faults_the_latest_can_be_replayed(parts, monkeypatch):
    monkeypatch.setattr("corral.engine.pool.recovery.MAX_REPLAYABLE_FAULTS", 2)
    actions = tuple(np.arange(9.0))
    for step in range(4):
        episode = EpisodeRecord(kit=None, task=None, actions=actions)
        shown = {"last_actions": actions[-1:], "episode": episode}
        parts.recovery.env_rebuilt(Fault("raised", "step", slot=0, step=step, **shown))
    kept = parts.recovery.take_faults()
    assert [fault.step for fault in kept] == [0, 1, 2, 3]
    assert [fault.episode is None for fault in kept] == [True, True, False, False]
    assert [fault.last_actions for fault in kept] == [(8.0,)] * 4
    assert parts.recovery.take_faults() == () and parts.recovery.count == 4
