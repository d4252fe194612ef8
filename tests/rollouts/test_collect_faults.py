"""What broke is restarted; its rows are marked, and not learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from breaking_env import FINE, KILL, LENGTH, RAISE, Fragile
from contracts.reference import same

from corral import Collector, Decision, Pool, Rollout, Step
from corral.learners.returns import gae

MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    "two_groups": {"mode": "two_groups"},
    "first_ready": {"mode": "first_ready", "min_slots": 1},
}


class Saboteur:
    """Sends `how` once, to one slot in one row; remembers how old each episode is."""

    def __init__(self, how: int, row: int, slot: int) -> None:
        self._how, self._row, self._slot = how, row, slot
        self._asked: dict[int, int] = {}

    def initial_carry(self, rows: int) -> Any:
        return np.zeros(rows, int)

    def act(self, step: Step, carry: Any, rng: Any) -> Decision:
        action = np.full(len(step), FINE)
        for position, slot in enumerate(step.slots.tolist()):
            row = self._asked[slot] = self._asked.get(slot, -1) + 1
            if (row, slot) == (self._row, self._slot):
                action[position] = self._how
        value = self.value(step.obs, carry)
        return Decision(action, carry + 1, {"value": value, "age": carry})

    def value(self, obs: Any, carry: Any) -> Any:
        return obs[:, 0] + obs[:, 1]


def collected(mode: str, how: int, autoreset: Any = "same_step") -> Rollout:
    with Pool(
        Fragile,
        4,
        backend="process",
        workers=2,
        seed=5,
        autoreset=autoreset,
        on_fault="restart",
    ) as pool:
        return Collector(pool, Saboteur(how, 3, 1), **MODES[mode]).collect(16)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_an_env_that_raised_leaves_one_row_that_does_not_count(
    mode: str, autoreset: Any
) -> None:
    rollout = collected(mode, RAISE, autoreset)
    fillers = rollout.valid[:, 1] == np.False_
    assert fillers[3] and rollout.truncated[3, 1] and not rollout.terminated[3, 1]
    assert rollout.reward[3, 1] == rollout.bootstrap[3, 1] == 0
    (fault,) = rollout.faults
    assert (fault.kind, fault.slot) == ("raised", 1)
    assert (3, 1) not in {(one.row, one.slot) for one in rollout.episodes}
    assert all(one.length == LENGTH for one in rollout.episodes)
    assert len(rollout.final_obs) == rollout.ended.sum()
    assert_ages(rollout)


def assert_ages(rollout: Rollout) -> None:
    """Observations, carries and `started` agree on where episodes begin."""
    age = rollout.extras["age"]
    assert (age[rollout.started] == 0).all()
    assert (rollout.obs[..., 1][rollout.started] == 0).all()
    assert (rollout.obs[..., 1][rollout.valid] == age[rollout.valid]).all()


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_that_died_takes_its_slots_rows_along(mode: str) -> None:
    rollout = collected(mode, KILL)
    kinds = {fault.slot: fault.kind for fault in rollout.faults}
    assert kinds[1] == "died" and set(kinds) <= {0, 1}
    lost = ~rollout.valid
    assert lost[3, 1] and rollout.truncated[lost].all()
    assert lost.sum() == len(rollout.faults)
    assert not lost[:, 2:].any()
    assert_ages(rollout)


def test_every_mode_collects_the_same_around_a_fault() -> None:
    one, *others = (collected(mode, RAISE) for mode in MODES)
    for other in others:
        for name in ("obs", "action", "reward", "truncated", "valid", "started"):
            assert same(getattr(other, name), getattr(one, name)), name
        assert same(other.bootstrap, one.bootstrap)
        assert same(other.final_obs, one.final_obs)


def test_a_row_before_a_fault_is_bootstrapped_by_what_was_seen_last() -> None:
    rollout = collected("sync", RAISE)
    value = rollout.extras["value"]
    advantage, returns = gae(
        rollout.reward,
        value,
        rollout.terminated,
        rollout.truncated,
        rollout.valid,
        rollout.bootstrap,
        rollout.next_value,
        gamma=0.9,
        lam=0.8,
    )
    assert advantage[3, 1] == 0 and returns[3, 1] == value[3, 1]
    assert returns[2, 1] == pytest.approx(1.0 + 0.9 * value[3, 1])
