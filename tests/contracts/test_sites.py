"""Sites step the envs beside them, with the same rows as the caller would get."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from corral import Pool
from corral.engine.adapters.pettingzoo import multi_env
from corral.engine.pool.sites import SiteContext, Sites
from corral.errors import EnvError, OptionError, OrderError
from tests.guard.envs import Crowd

from .batched_envs import Flock, actions_for
from .envs import Countdown, Echo, Gambler, Mixed, Tasked
from .reference import (
    Row,
    assert_same_rows,
    batched,
    drive,
    part_of,
    row_of,
    same,
)

MakePool = Callable[..., Pool]
SLOTS = 5
STEPS = 24


class Walker:
    """Steps the slots of its pool through given actions."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def drive(self, actions: Any, min_slots: int | None, mode: str) -> list[list[Row]]:
        return drive(self.pool, self._ours(actions), min_slots, mode)

    def reset(self, tasks: list[Any] | None = None) -> list[list[Row]]:
        return self._rows([self.pool.reset(tasks=tasks)])

    def walk(self, actions: Any, first: int, last: int) -> list[list[Row]]:
        """Take the steps from `first` to before `last`."""
        ours = [one[first:last] for one in self._ours(actions)]
        columns = zip(*ours, strict=True)
        steps = [self.pool.step_all(batched(self.pool, [*one])) for one in columns]
        return self._rows(steps)

    def observe(self) -> list[Any]:
        space, seen = self.pool.spec.observation_space, self.pool.observe()
        return [part_of(space, seen, slot) for slot in range(self.pool.num_envs)]

    def _ours(self, actions: Any) -> Any:
        return [actions[slot] for slot in self.pool.slots]

    def _rows(self, steps: list[Any]) -> list[list[Row]]:
        space = self.pool.spec.observation_space
        slots = range(self.pool.num_envs)
        return [[row_of(space, step, slot) for step in steps] for slot in slots]


def joined(parts: list[list[list[Row]]]) -> list[list[Row]]:
    """The rows of all slots, from those of each worker's."""
    return [rows for part in parts for rows in part]


def assert_same(got: list[list[Row]], expected: list[list[Row]]) -> None:
    for slot, (ours, truth) in enumerate(zip(got, expected, strict=True)):
        assert_same_rows(ours, truth, f"slot {slot}")


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "cartpole": (functools.partial(gymnasium.make, "CartPole-v1"), {}),
    "mixed": (Mixed, {}),
    "batched": (functools.partial(Flock, Mixed), {"batched": True}),
    "global generators": (Gambler, {"isolate_rng": True}),
    "mailed": (functools.partial(Echo, spaces.Text(8), end_after=5), {}),
    "agents": (Crowd, {"wrappers": (multi_env,)}),
}


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("name", ["mixed", "batched"])
def test_a_sites_rows_are_those_of_the_caller(
    make_pool: MakePool, name: str, mode: str
) -> None:
    env, options = CASES[name]
    pool, other = (make_pool(env, SLOTS, **options) for _ in range(2))
    actions = actions_for(pool.spec.action_space, SLOTS, STEPS)
    sites = Sites(pool, Walker)
    for min_slots in (None, 1):
        expected = drive(other, actions, min_slots, mode)
        assert_same(joined(sites.call("drive", (actions, min_slots, mode))), expected)


@pytest.mark.parametrize("name", CASES)
def test_caller_and_sites_may_take_turns(make_pool: MakePool, name: str) -> None:
    env, options = CASES[name]
    pool, other = (make_pool(env, SLOTS, **options) for _ in range(2))
    actions = actions_for(pool.spec.action_space, SLOTS, STEPS)
    space = pool.spec.observation_space
    sites, caller, alone = Sites(pool, Walker), Walker(pool), Walker(other)
    assert_same(joined(sites.call("reset")), alone.reset())
    for turn, first in enumerate(range(0, STEPS, 3)):
        span = actions, first, first + 3
        truth = alone.walk(*span)
        by_site = turn % 2 == 0
        got = joined(sites.call("walk", span)) if by_site else caller.walk(*span)
        assert_same(got, truth)
        assert same(other.observe(), pool.observe())
        assert same(
            [part_of(space, other.observe(), slot) for slot in range(SLOTS)],
            [row for part in sites.call("observe") for row in part],
        )
        if turn == 3:  # single slots are ahead of others from here on
            for one in (pool, other):
                one.reset([1, 4], seeds=[5, 6])


class Told:
    """What a site finds around it."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.context = pool, SiteContext.of(pool)

    def wiring(self) -> tuple[bool, list[str], int]:
        details = self.pool._recovery._fault_details
        same = details is self.pool._dispatcher.fault_details
        return same, [*self.pool._executor.shared], self.context.first_slot


def test_a_sites_pool_is_wired_as_its_parents(make_pool: MakePool) -> None:
    pool = make_pool(Mixed, SLOTS, shared={"table": np.zeros(3)})
    expected = [(True, ["table"], shard.start) for shard in pool.shards]
    assert Sites(pool, Told).call("wiring") == expected


def test_tasks_reach_the_episodes_of_sites(make_pool: MakePool) -> None:
    options = {"sample_task": lambda slot, episode, rng: (slot, episode)}
    pool, other = (make_pool(Tasked, SLOTS, **options) for _ in range(2))
    sites, alone = Sites(pool, Walker), Walker(other)
    tasks = [f"task {slot}" for slot in range(SLOTS)]
    for one in (pool, other):
        one.reset()
        one.assign(2, "assigned")
    actions = actions_for(pool.spec.action_space, SLOTS, 5)
    assert_same(joined(sites.call("walk", (actions, 0, 5))), alone.walk(actions, 0, 5))
    assert not pool._state.assigned
    given = [(tasks[shard.start : shard.stop],) for shard in pool.shards]
    assert_same(joined(sites.call("reset", given)), alone.reset(tasks))


def test_a_call_with_arguments_for_each_worker(make_pool: MakePool) -> None:
    pool = make_pool(Countdown, SLOTS)
    # By proxy: a table of sites by pool must not keep its pools alive.
    sites = Sites(weakref.proxy(pool), lambda pool: pool.slots)
    starts = [shard.start for shard in pool.shards]
    found = sites.call("index", [(start,) for start in starts])
    assert found == [0] * len(starts)
    with pytest.raises(OptionError, match="give one for each"):
        sites.start("index", [(0,)] * 7)


def test_while_sites_are_at_work_the_pool_takes_no_other_command(
    make_pool: MakePool,
) -> None:
    pool = make_pool(Countdown, SLOTS)
    sites = Sites(pool, Walker)
    with pytest.raises(OrderError, match="call start first"):
        sites.finish()
    sites.start("reset")
    for refused in (pool.reset, pool.observe, lambda: sites.start("reset")):
        with pytest.raises(OrderError, match="call finish"):
            refused()
    sites.finish()
    pool.send(np.zeros(SLOTS, np.int64))
    with pytest.raises(OrderError, match="call recv"):
        sites.start("reset")
    pool.recv()
    assert len(sites.call("reset")) == len(pool.shards)


def test_a_pool_can_be_closed_while_sites_are_at_work(make_pool: MakePool) -> None:
    pool = make_pool(Countdown, SLOTS)
    sites = Sites(pool, Walker)
    sites.start("reset")
    pool.close()
    assert pool.closed


def test_a_root_seed_set_by_sites_is_the_pools(make_pool: MakePool) -> None:
    pool, other = make_pool(Countdown, SLOTS), make_pool(Countdown, SLOTS)
    sites = Sites(pool, Reseeding)
    sites.call("reseed", (123,))
    expected = other.reset(seed=123)
    assert pool.seed == 123
    assert pool.reset().seed.tolist() == other.reset().seed.tolist()
    assert expected.seed.tolist() != other.reset().seed.tolist()


class Reseeding:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def reseed(self, seed: int) -> None:
        self.pool.reset(seed=seed)


def test_a_site_that_raises_is_an_error_that_names_its_method(
    make_pool: MakePool,
) -> None:
    pool = make_pool(Countdown, SLOTS)
    sites = Sites(pool, Walker)
    with pytest.raises(EnvError, match=r"AttributeError in site\.fly"):
        sites.call("fly")
    assert len(sites.call("reset")) == len(pool.shards)


def test_a_site_that_cannot_be_built_is_an_error(make_pool: MakePool) -> None:
    pool = make_pool(Countdown, SLOTS)
    with pytest.raises(EnvError, match=r"ZeroDivisionError in site\.build"):
        Sites(pool, lambda pool: 1 // 0)
    assert pool.reset().valid.all()


class Counted:
    """Counts itself in its worker."""

    alive: list[int] = []  # noqa: RUF012

    def __init__(self, pool: Pool) -> None:
        self.alive.append(id(self))

    def __del__(self) -> None:
        self.alive.remove(id(self))

    def count(self) -> int:
        return len(self.alive)


def test_workers_drop_sites_that_are_no_longer_in_use(make_pool: MakePool) -> None:
    gc.collect()  # sites of closed pools, where workers share this process
    pool = make_pool(Countdown, SLOTS)
    first, second = Sites(pool, Counted), Sites(pool, Counted)
    both = second.call("count")
    del first
    second.call("count")
    assert second.call("count") == [count // 2 for count in both]


class Player(Walker):
    """Obeys one operation: a step or a reset of some slots, in an autoreset mode."""

    def play(self, kind: str, slots: list[int], mode: Any) -> list[tuple[int, Row]]:
        pool, first = self.pool, self.pool.slots.start
        ours = [slot - first for slot in slots if slot in pool.slots]
        if not ours:
            return []
        if kind == "reset":
            pool.send_reset(ours)
        else:
            space = pool.spec.action_space
            every = actions_for(space, SLOTS, 1)
            actions = [every[first + slot][0] for slot in ours]
            whole = len(ours) == pool.num_envs
            pool.send(actions, None if whole else ours, autoreset=mode)
        step = pool.recv()
        space = pool.spec.observation_space
        numbered = enumerate((step.slots + first).tolist())
        return [(slot, row_of(space, step, position)) for position, slot in numbered]


OPERATIONS = st.tuples(
    st.booleans(),
    st.sampled_from(["step", "step", "step", "reset"]),
    st.sets(st.integers(0, SLOTS - 1), min_size=1).map(sorted),
    st.sampled_from(["same_step", "next_step"]),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(OPERATIONS, min_size=1, max_size=25))
def test_any_turns_of_caller_and_sites_give_the_same_rows(
    program: list[tuple[bool, str, list[int], str]],
) -> None:
    options: dict[str, Any] = {"seed": 3, "isolation": "shared"}
    with (
        Pool(Mixed, SLOTS, backend="thread", workers=2, **options) as pool,
        Pool(Mixed, SLOTS, backend="serial", **options) as other,
    ):
        sites, caller, alone = Sites(pool, Player), Player(pool), Player(other)
        for by_site, *operation in [(True, "reset", [*range(SLOTS)], ""), *program]:
            expected = alone.play(*operation)
            parts = (
                sites.call("play", tuple(operation))
                if by_site
                else [caller.play(*operation)]
            )
            got = [one for part in parts for one in part]
            assert [slot for slot, _ in got] == [slot for slot, _ in expected]
            rows = [[row for _, row in one] for one in (got, expected)]
            assert_same_rows(*rows, f"{operation}")
