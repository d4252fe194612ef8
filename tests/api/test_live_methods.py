"""Each API steps with the env's `step` of that moment, as a plain loop does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import corral
from corral import dropin
from corral.errors import SpacesDiffer
from tests.api.multi_envs import Everyone, SmallerCrowd, Table
from tests.contracts.changing_envs import Counter, Phases, Plus, fivefold

from .side_by_side import assert_same

SLOTS = 2


def changed_by_hand(envs: Any) -> None:
    """What people do to the list of envs that both libraries have."""
    envs.envs[0] = Plus(envs.envs[0])
    envs.envs[1].step = fivefold


def unchanged_again(envs: Any) -> None:
    envs.envs[0].env = Plus(envs.envs[0].env, 100.0)
    del envs.envs[1].step
    envs.envs = [Plus(env, 7.0) for env in envs.envs]


def test_the_list_of_envs_is_live_as_gymnasiums_is(
    opened: Callable[[Any], Any],
) -> None:
    ours = opened(dropin.SyncVectorEnv([Counter, Phases]))
    theirs = opened(SyncVectorEnv([Counter, Phases]))
    actions = np.array([1, 2])
    for envs in (ours, theirs):
        envs.reset(seed=1)
    for change in (None, changed_by_hand, unchanged_again):
        for envs in (ours, theirs):
            if change is not None:
                change(envs)
        for _ in range(17):
            assert_same(ours.step(actions), theirs.step(actions), str(change))
    assert [type(env) for env in ours.envs] == [type(env) for env in theirs.envs]


def test_the_list_of_envs_is_live_as_stable_baselines3s_is(
    opened: Callable[[Any], Any],
) -> None:
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    ours = opened(dropin.DummyVecEnv([Counter, Phases]))
    theirs = vec_env.DummyVecEnv([Counter, Phases])
    actions = np.array([1, 2])
    for envs in (ours, theirs):
        envs.seed(1)
        envs.reset()
    for change in (None, changed_by_hand, unchanged_again):
        for envs in (ours, theirs):
            if change is not None:
                change(envs)
        for _ in range(17):
            assert_same(ours.step(actions), theirs.step(actions), str(change))
    for envs in (ours, theirs):
        envs.set_attr("step", fivefold, indices=[1])
    assert_same(ours.step(actions), theirs.step(actions), "set_attr")


class Masked(Counter):
    def action_masks(self) -> Any:
        return np.ones(9, np.bool_)


def test_an_env_that_carries_masks_can_be_exchanged_too(
    opened: Callable[[Any], Any],
) -> None:
    pytest.importorskip("stable_baselines3")
    envs = opened(corral.make_sb3(Masked, 1))  # auto: in a carrier, and yet serial
    envs.reset()
    envs.envs[0] = Plus(envs.envs[0])
    assert type(envs.envs[0]) is Plus
    assert envs.step(np.array([1]))[1].tolist() == [1011]
    assert envs.env_method("action_masks")[0].all()


@pytest.mark.parametrize("backend", ["serial", "thread", "process"])
def test_gymnasiums_calls_can_exchange_a_step(
    backend: str, opened: Callable[[Any], Any]
) -> None:
    envs = opened(corral.make(Counter, SLOTS, backend=backend))
    envs.reset()
    envs.set_attr("step", [fivefold, fivefold])
    assert envs.step(np.array([1, 2]))[1].tolist() == [5, 10]


# Several agents -----------------------------------------------------------------------


def generous(crowd: Any) -> None:
    """Put another step on a parallel env."""
    own = crowd.step

    def step(actions: Any) -> Any:
        obs, rewards, *rest = own(actions)
        return obs, dict.fromkeys(rewards, 1000.0), *rest

    crowd.step = step


def fixed(table: Any) -> None:
    """Put another step on an env of turns."""
    own = table.step

    def step(action: Any) -> None:
        own(action)
        table.rewards = dict.fromkeys(table.rewards, 700.0)

    table.step = step


def total(envs: Any) -> list[float]:
    """Every agent's reward of one step, summed; whatever the actions are."""
    space = envs.pool.spec.action_space
    space.seed(0)
    return envs.pool.step([space.sample() for _ in range(SLOTS)]).reward.tolist()


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_parallel_envs_are_stepped_with_what_they_have(
    backend: str, opened: Callable[[Any], Any]
) -> None:
    envs = opened(corral.make_multi(Everyone, SLOTS, backend=backend, seed=0))
    envs.reset()
    envs.pool.apply(generous, slots=[1])
    ours, theirs = total(envs)
    assert theirs == 5000.0 and ours < 1000.0


def test_envs_of_turns_are_stepped_with_what_they_have(
    opened: Callable[[Any], Any],
) -> None:
    envs = opened(corral.make_multi(Table, SLOTS, backend="serial", seed=0))
    envs.reset()
    envs.pool.apply(fixed, slots=[1])
    ours, theirs = total(envs)
    assert theirs and theirs % 700.0 == 0.0 and ours < 700.0


def test_envs_of_several_agents_can_be_exchanged(opened: Callable[[Any], Any]) -> None:
    envs = opened(corral.make_multi(Everyone, SLOTS, backend="serial", seed=0))
    other = Everyone()
    generous(other)
    envs.pool.envs[0] = other
    envs.reset()
    assert envs.pool.envs[0] is other
    assert total(envs)[0] == 5000.0
    with pytest.raises(SpacesDiffer, match="cannot replace"):
        envs.pool.envs[0] = SmallerCrowd()


class Eyes(SmallerCrowd):
    """All of them, all the time."""

    def __init__(self) -> None:
        super().__init__(odd="everyone")


def test_flattened_agents_follow_the_env_inside_them() -> None:
    flat = corral.FlattenedAgents(Eyes())
    flat.reset(seed=0)
    other = Eyes()
    other.reset(seed=0)
    generous(other)
    flat.env = other
    assert flat.step(np.zeros(3, np.int64))[1] == 3000.0


def test_agilerls_workers_are_stepped_with_what_they_have(
    opened: Callable[[Any], Any],
) -> None:
    pytest.importorskip("agilerl.vector")
    envs = opened(dropin.AsyncPettingZooVecEnv([Everyone] * SLOTS))
    envs.reset(seed=1)
    envs.pool.apply(generous, slots=[0])
    actions = {
        agent: np.stack([envs.single_action_space(agent).sample()] * SLOTS)
        for agent in Everyone.possible_agents
    }
    rewards = envs.step(actions)[1]
    assert all(np.ravel(reward)[0] == 1000.0 for reward in rewards.values())


def test_a_shared_policys_envs_are_stepped_with_what_they_have(
    opened: Callable[[Any], Any],
) -> None:
    envs = opened(corral.make_shared_policy(Eyes, SLOTS, backend="serial"))
    envs.reset(seed=0)
    with mock.patch.object(Eyes, "step", generous_step):
        rewards = envs.step(envs.action_space.sample())[1]
    assert rewards.tolist() == [1000.0] * 6


def generous_step(self: Any, actions: Any) -> Any:
    obs, rewards, *rest = SmallerCrowd.step(self, actions)
    return obs, dict.fromkeys(rewards, 1000.0), *rest
