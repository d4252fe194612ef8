"""Rollouts of envs by agents: what happened to each, in its own time."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from learners.taac.team_envs import AGENTS as SQUAD
from learners.taac.team_envs import Squad

import corral
from corral.api.pettingzoo.env import open_team_pool
from corral.api.shared_policy.policy import SharedPolicy
from corral.api.shared_policy.spaces import shared_spaces
from corral.engine.adapters.team import TEAM_KEY
from corral.learners.returns import gae
from corral.learners.shared.agent_rows import AgentRows

GAMMA, LAMBDA = 0.9, 0.8


def chosen(obs: Any) -> int:
    return 1 + int(np.floor(1000 * abs(float(obs.sum())))) % 4


def worth(obs: Any) -> float:
    return float(np.float64(obs.sum()) * 3.0 + 1.0)


class ByObservation:
    """Every decision follows from the observation; memory counts decisions."""

    start = 0

    def initial_carry(self, rows: int) -> Any:
        return np.zeros((rows, 1))

    def act(self, step: Any, carry: Any, rng: Any) -> Any:
        action = np.array([chosen(one) for one in step.obs]) + self.start
        extras = {"value": self.value(step.obs, carry), "remembered": carry[:, 0]}
        return corral.Decision(action, carry + 1.0, extras)

    def value(self, obs: Any, carry: Any) -> Any:
        return np.array([worth(one) for one in obs])


class SquadPolicy(ByObservation):
    start = 1  # actions from 2 on, of which there are three

    def act(self, step: Any, carry: Any, rng: Any) -> Any:
        decision = super().act(step, carry, rng)
        decision.action = 2 + decision.action % 3
        return decision


def collected(makers: list[Any], policy: Any, rows: int, **options: Any) -> Any:
    """The rollouts by agents of as many calls as `rows` has entries."""
    with open_team_pool(makers, None, seed=0, **options) as pool:
        team = pool.spec.metadata[TEAM_KEY]
        spaces = shared_spaces(team, pad=False)
        shared = SharedPolicy(policy, team, spaces)
        collector = corral.Collector(pool, shared)
        whole = collector.collect(rows)
        log = [one.log for one in pool.envs] if makers[0] is Squad else None
        return AgentRows(team, spaces).of(whole), whole, log


def advantages(rollout: Any) -> Any:
    return gae(
        rollout.reward,
        rollout.extras["value"],
        rollout.terminated,
        rollout.truncated,
        rollout.valid,
        rollout.bootstrap,
        rollout.next_value,
        gamma=GAMMA,
        lam=LAMBDA,
    )[0]


def slow_advantage(rows: list[Any], place: int) -> float:
    """Of one row of an agent, straight from the definition."""
    row = rows[place]
    follows = rows[place + 1] if place + 1 < len(rows) else None
    assert row.known
    if row.terminated or row.truncated:
        return float(row.reward + GAMMA * row.bootstrap - worth(row.obs))
    assert follows is not None
    delta = row.reward + GAMMA * worth(follows.obs) - worth(row.obs)
    if not follows.known:
        return float(delta)
    return float(delta + GAMMA * LAMBDA * slow_advantage(rows, place + 1))


# Agents in turn -----------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_turns_are_what_pettingzoos_own_loop_sees(backend: str) -> None:
    turn_envs = pytest.importorskip("learners.shared.turn_envs")
    from learners.shared.slow_agent_rows import played

    turns, envs = 150, 3
    makers = [partial(turn_envs.Parlour, number) for number in range(envs)]
    rollout, _, _ = collected(makers, ByObservation(), turns, backend=backend)
    advantage = advantages(rollout)
    counts = {"terminated": 0, "truncated": 0, "unknown": 0, "continued": 0}
    for number, make in enumerate(makers):
        expected = played(make(), turns, chosen, worth)
        for place, agent in enumerate(turn_envs.AGENTS):
            column = number * len(turn_envs.AGENTS) + place
            rows = expected[agent]
            assert rollout.valid[len(rows) :, column].sum() == 0
            remembered = 0
            for at, row in enumerate(rows):
                here = at, column
                remembered = 0 if row.started else remembered + 1
                assert np.array_equal(rollout.obs[here], row.obs)
                assert rollout.action[here] == row.action
                assert rollout.started[here] == row.started
                assert rollout.extras["remembered"][here] == remembered
                assert rollout.valid[here] == row.known
                if not row.known:
                    counts["unknown"] += 1
                    assert advantage[here] == 0.0
                    continue
                assert rollout.reward[here] == pytest.approx(row.reward, abs=1e-12)
                assert rollout.terminated[here] == row.terminated
                assert rollout.truncated[here] == row.truncated
                assert rollout.bootstrap[here] == row.bootstrap
                kind = "terminated" if row.terminated else "continued"
                counts["truncated" if row.truncated else kind] += 1
                if _closed(rows, at):
                    slow = slow_advantage(rows, at)
                    assert advantage[here] == pytest.approx(slow, abs=1e-9)
    assert min(counts.values()) > 0, counts


def _closed(rows: list[Any], at: int) -> bool:
    """Whether what the row leads to is among the rows, not after the rollout."""
    for place in range(at, len(rows)):
        row = rows[place]
        if row.terminated or row.truncated or not row.known:
            return True
    return False


def test_the_last_turn_is_known_if_the_agent_acts_next() -> None:
    turn_envs = pytest.importorskip("learners.shared.turn_envs")
    makers = [partial(turn_envs.Parlour, number) for number in range(8)]
    rollout, whole, _ = collected(makers, ByObservation(), 40, backend="serial")
    (group,) = whole.next_obs
    acting = whole.next_obs[group]["acting"].ravel()
    assert acting.sum() == 8
    for column in np.flatnonzero(acting).tolist():
        last = np.flatnonzero(~rollout.started[:, column])
        expected = worth(whole.next_obs[group]["obs"].reshape(-1, 2)[column])
        assert rollout.next_value[column] == expected
        if len(last) and not whole.next_started[column // 3]:
            row = last[-1]
            if not (rollout.terminated | rollout.truncated)[row, column]:
                assert rollout.valid[row, column]
                after = rollout.extras["value"][row + 1, column]
                assert after == pytest.approx(expected)


# Agents at once -----------------------------------------------------------------------


def test_rows_of_agents_at_once_are_what_happened_to_each() -> None:
    rollout, _, logs = collected([Squad] * 2, SquadPolicy(), 120, backend="serial")
    seen = {"died": 0, "cut": 0, "stayed": 0}
    finals = {}
    places = np.argwhere(rollout.terminated | rollout.truncated).tolist()
    for number, place in enumerate(places):
        finals[tuple(place)] = rollout.final_obs[number]
    for slot, log in enumerate(logs):
        for place, agent in enumerate(SQUAD):
            column = slot * len(SQUAD) + place
            happened = [one[agent] for one in log if agent in one]
            assert rollout.valid[:, column].sum() == len(happened)
            for at, (obs, action, reward, dead, late, after) in enumerate(happened):
                here = at, column
                assert np.array_equal(rollout.obs[here], obs)
                assert rollout.action[here] == action
                assert rollout.reward[here] == reward
                assert rollout.terminated[here] == dead
                assert rollout.truncated[here] == (late and not dead)
                if dead or late:
                    assert np.array_equal(finals[here], after)
                if late and not dead:
                    assert rollout.bootstrap[here] == worth(after)
                    seen["cut"] += 1
                seen["died" if dead else "stayed"] += 1
    assert min(seen.values()) > 0


def test_rows_do_not_depend_on_where_envs_run() -> None:
    pytest.importorskip("pettingzoo", reason="the envs of this test")
    from learners.shared.turn_envs import Parlour

    makers = [partial(Parlour, number) for number in range(3)]
    one, _, _ = collected(makers, ByObservation(), 30, backend="serial")
    for backend in ("thread", "process"):
        other, _, _ = collected(makers, ByObservation(), 30, backend=backend)
        for name in ("obs", "action", "reward", "valid", "bootstrap", "next_value"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
