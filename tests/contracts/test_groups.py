"""Two groups of slots that take turns."""

from __future__ import annotations

import functools
from itertools import islice
from typing import Any

import numpy as np
import pytest

import corral
from corral import Pool, take_turns, two_groups
from corral.errors import OptionError, OrderError

from .envs import Countdown, Echo
from .reference import Row, assert_same_rows, drive, row_of

SLOTS = 5
STEPS = 30


@pytest.mark.parametrize(
    ("slots", "workers"), [(2, 1), (5, 1), (8, 2), (7, 2), (6, 6), (7, 5), (9, 4)]
)
def test_both_groups_have_half_of_all_slots_and_of_every_shard(
    slots: int, workers: int
) -> None:
    with Pool(Echo, slots, backend="thread", workers=workers) as pool:
        first, second = two_groups(pool)
        shards = pool.shards
    assert sorted([*first, *second]) == list(range(slots))
    assert abs(len(first) - len(second)) <= 1
    assert list(first) == sorted(first) and list(second) == sorted(second)
    for shard in shards:
        halves = [len(set(shard) & set(group.tolist())) for group in (first, second)]
        assert abs(halves[0] - halves[1]) <= 1


def test_one_slot_makes_no_two_groups() -> None:
    with (
        Pool(Echo, 1, backend="serial") as pool,
        pytest.raises(OptionError, match="two slots"),
    ):
        two_groups(pool)


def actions_of(slot: int) -> list[int]:
    return [(7 * slot + 13 * step) % 100 for step in range(STEPS)]


def in_turns(pool: Pool) -> list[list[Row]]:
    """Every slot's rows, by groups; each takes STEPS steps after its reset."""
    rows: list[list[Row]] = [[] for _ in range(SLOTS)]
    space = pool.spec.observation_space
    pool.send_reset(seed=3)
    for step in islice(take_turns(pool), 2 * (STEPS + 1)):
        for position, slot in enumerate(step.slots.tolist()):
            rows[slot].append(row_of(space, step, position))
        count = len(rows[int(step.slots[0])])
        if count <= STEPS:
            actions = [actions_of(slot)[count - 1] for slot in step.slots.tolist()]
            pool.send(np.array(actions), slots=step.slots)
    return rows


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_turns_give_the_trajectories_of_whole_batches(
    make_pool: Any, mode: str
) -> None:
    pool = make_pool(functools.partial(Countdown, float, 6), SLOTS, autoreset=mode)
    taken = in_turns(pool)
    assert pool.waiting == 0
    together = drive(
        pool, [actions_of(slot) for slot in range(SLOTS)], None, mode, seed=3
    )
    for slot in range(SLOTS):
        for row in (*taken[slot], *together[slot]):
            row.info.pop("episode", None)  # the envs' own count, which goes on
        assert_same_rows(taken[slot], together[slot], f"slot {slot}")


def test_a_group_that_was_not_sent_to_is_named(make_pool: Any) -> None:
    pool = make_pool(Echo, 4)
    pool.send_reset()
    turns = corral.take_turns(pool, (np.array([0, 1]), np.array([2, 3])))
    assert next(turns).slots.tolist() == [0, 1]
    assert next(turns).slots.tolist() == [2, 3]
    pool.send([5, 5], slots=[2, 3])
    with pytest.raises(OrderError, match=r"slots \[0, 1\] have no pending command"):
        next(turns)
