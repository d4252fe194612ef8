"""`step` and `reset` are the env's own at that moment, whoever has exchanged them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

from corral import Pool
from corral.errors import OptionError

from .changing_envs import (
    Brief,
    Counter,
    Phases,
    Plus,
    Row,
    fivefold,
    take_another_inside,
    take_fivefold,
    wrapped_counter,
)

MakePool = Callable[..., Pool]
SLOTS = 3


def looped(make: Callable[[], Any], steps: int) -> list[list[float]]:
    """Rewards of a plain loop over each env; action = slot + 1."""
    told = []
    for slot in range(SLOTS):
        env, rewards = make(), []
        env.reset(seed=0)
        for _ in range(steps):
            _, reward, terminated, truncated, _ = env.step(slot + 1)
            rewards.append(float(reward))
            if terminated or truncated:
                env.reset(seed=0)
        told.append(rewards)
    return np.transpose(told).tolist()


@pytest.mark.parametrize("isolate_rng", [False, True])
def test_an_env_may_exchange_its_own_methods_and_class(
    make_pool: MakePool, isolate_rng: bool
) -> None:
    pool = make_pool(Phases, SLOTS, isolate_rng=isolate_rng)
    pool.reset()
    got = [pool.step([1, 2, 3]).reward.tolist() for _ in range(40)]
    assert got == looped(Phases, 40)
    assert {int(row[0]) % 10 for row in got} == {1, 2, 3}, "every phase was seen"


def test_slots_that_are_stepped_alone_look_as_well(make_pool: MakePool) -> None:
    pool = make_pool(Phases, SLOTS)
    pool.reset()
    expected = looped(Phases, 15)
    for row in expected:
        for slot in (2, 0, 1):
            step = pool.step([slot + 1], slots=[slot])
            assert step.reward.tolist() == [row[slot]]


def test_a_reset_that_takes_its_place_may_take_less(make_pool: MakePool) -> None:
    pool = make_pool(Brief, SLOTS)
    assert pool.reset(options={"some": 1}).obs[:, 0].tolist() == [0] * SLOTS
    for _ in range(3):
        step = pool.step([1, 2, 3])
    assert step.started.all() and step.obs[:, 0].tolist() == [100] * SLOTS


def test_what_is_put_on_an_instance_is_called(make_pool: MakePool) -> None:
    pool = make_pool(Counter, SLOTS)
    pool.reset()
    assert pool.step([1, 2, 3]).reward.tolist() == [11, 21, 31]
    pool.apply(take_fivefold, slots=[1])
    assert pool.step([1, 2, 3]).reward.tolist() == [11, 10, 31]
    pool.set_attr("step", fivefold)
    assert pool.step([1, 2, 3]).reward.tolist() == [5, 10, 15]


def test_an_env_that_is_exchanged_inside_a_wrapper_is_called(
    make_pool: MakePool,
) -> None:
    pool = make_pool(wrapped_counter, SLOTS)
    pool.reset()
    pool.step([1, 2, 3])
    pool.apply(take_another_inside, slots=[0])
    step = pool.step([1, 2, 3])
    assert step.reward.tolist() == [1081, 1021, 1031]
    assert step.obs[:, 0].tolist() == [1, 2, 2]


def test_a_batched_env_may_exchange_its_own_step(make_pool: MakePool) -> None:
    pool = make_pool(Row, 4, batched=True)
    pool.reset()
    ones = [pool.step([1, 1, 1, 1]).reward.tolist() for _ in range(5)]
    assert ones == [[11] * 4] * 3 + [[12] * 4] * 2


@pytest.mark.parametrize("backend", ["serial", "thread"], indirect=True)
def test_a_method_that_is_patched_on_the_class_is_called(make_pool: MakePool) -> None:
    pool = make_pool(Counter, SLOTS)
    pool.reset()
    with mock.patch.object(Counter, "step", lambda self, action: fivefold(action)):
        assert pool.step([1, 2, 3]).reward.tolist() == [5, 10, 15]
    assert pool.step([1, 2, 3]).reward.tolist() == [11, 21, 31]


@pytest.mark.parametrize("backend", ["serial"], indirect=True)
def test_another_env_can_be_put_into_a_slot(make_pool: MakePool) -> None:
    pool = make_pool(Counter, SLOTS)
    pool.reset()
    first = pool.envs[0]
    pool.envs[0] = Plus(pool.envs[0])
    pool.envs[1:] = [Plus(env, 100.0) for env in pool.envs[1:]]
    assert pool.envs[0].env is first
    assert pool.step([1, 2, 3]).reward.tolist() == [1011, 121, 131]
    with mock.patch.object(pool.envs[2], "step", wraps=fivefold) as patched:
        assert pool.step([1, 2, 3]).reward.tolist() == [1011, 121, 15]
    patched.assert_called_once()
    pool.reset()
    assert first.time == 0, "the slot's resets go through the new env"
    assert pool.call("more") == (1000.0, 100.0, 100.0)


@pytest.mark.parametrize("backend", ["serial"], indirect=True)
def test_there_is_one_env_in_each_slot(make_pool: MakePool) -> None:
    pool = make_pool(Counter, SLOTS)
    for change in (
        lambda envs: envs.append(Counter()),
        lambda envs: envs.pop(),
        lambda envs: envs.__setitem__(slice(None), [Counter()]),
        lambda envs: envs.__delitem__(0),
    ):
        with pytest.raises(OptionError, match="3 slots"):
            change(pool.envs)
    with pytest.raises(IndexError):
        pool.envs[3] = Counter()
    assert len(pool.envs) == SLOTS
    batched = make_pool(Row, 2, batched=True)
    with pytest.raises(OptionError, match="no env of one slot"):
        batched.envs[0] = Row(2)
