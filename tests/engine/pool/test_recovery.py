"""Recovery: what a replaced worker is told, and what its slots lose."""

from __future__ import annotations

import numpy as np
import pytest
from scripted import SLOTS, Parts

from corral.engine.layout.plan import RETIREMENT_STAGE
from corral.engine.worker.commands import NewColumns, NewRootSeed, NextEpisode
from corral.engine.worker.letters import Letter
from corral.errors import Fault, WorkerDied


@pytest.fixture
def parts() -> Parts:
    made = Parts(on_fault="restart", max_restarts=2)
    made.reset()
    return made


def died(worker: int) -> WorkerDied:
    return WorkerDied("died", Fault(kind="died", command="step", worker=worker))


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


def test_a_root_seed_set_while_it_was_away_is_told(parts):
    parts.step_all()
    parts.recovery.recover(died(1))
    parts.recovery.root_seed_set(9)
    parts.executor.said.clear()
    parts.executor.on_return(1)
    assert (1, NewRootSeed(9)) in parts.executor.said


def test_every_slot_of_the_worker_is_told_why_with_its_next_row(parts):
    parts.step_all()
    parts.recovery.recover(died(0))
    parts.finish(*range(SLOTS))
    parts.recovery.before_results(parts.state.all)
    kinds = {slot: one.restarted.kind for slot, one in parts.inbox.letters.items()}
    assert kinds == {0: "died", 1: "shardmate"}


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


def test_a_worker_that_makes_room_costs_no_budget_and_no_episode(parts):
    parts.executor.control.vitals[:, RETIREMENT_STAGE] = 1
    for _ in range(5):
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
