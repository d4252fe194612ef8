"""Same seeds and actions, same trajectories, bit for bit, wherever the slots run."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import pytest

from corral import Pool

from .envs import Gambler, Mixed
from .reference import ReferenceSlot, Row, assert_same_rows, drive

ROOT = 11
SLOTS = 5


class Case(NamedTuple):
    make: Callable[[], Any]
    steps: int
    isolated: bool = False


CASES = {
    "cartpole": Case(functools.partial(gymnasium.make, "CartPole-v1"), 60),
    "ant": Case(functools.partial(gymnasium.make, "Ant-v5", max_episode_steps=9), 25),
    "mixed": Case(Mixed, 30),
    "global generators": Case(Gambler, 30, isolated=True),
}
PLACES = [("serial", 1), ("thread", 2)]
"""Where every env runs; with other numbers of workers, some do."""
COUNTS = {
    "cartpole": [
        *(("thread", count) for count in (1, 3, 4)),
        *(("process", count) for count in (1, 2, 3, 4)),
    ],
    "ant": [("process", 2)],
    "mixed": [("thread", 3), ("process", 2), ("process", 4)],
    # All slots in one process, which imports torch.
    "global generators": [("process", 1)],
}

# min_slots; the order of results does not depend on the mode, so one has them all.
BATCHES: dict[str, tuple[int | None, ...]] = {
    "same_step": (None, 1, 2, SLOTS),
    "next_step": (None, 2),
}


@functools.cache
def actions_of(name: str) -> list[list[Any]]:
    """[slot][step]; they depend on nothing else."""
    env = CASES[name].make()
    actions = []
    for slot in range(SLOTS):
        space = copy.deepcopy(env.action_space)
        space.seed(slot)
        actions.append([space.sample() for _ in range(CASES[name].steps)])
    env.close()
    return actions


@functools.cache
def truth_of(name: str, mode: str) -> list[list[Row]]:
    """The reference trajectories of all slots."""
    case = CASES[name]
    trajectories = []
    for slot, actions in enumerate(actions_of(name)):
        reference = ReferenceSlot(case.make, slot, ROOT, case.isolated)
        rows = [reference.reset()]
        rows += [reference.step(action, mode) for action in actions]
        trajectories.append(rows)
        reference.close()
    assert any(row.final_obs is not None for rows in trajectories for row in rows)
    return trajectories


@pytest.mark.parametrize(
    ("name", "place"),
    [
        pytest.param(name, place, id="-".join(map(str, (name, *place))))
        for name in CASES
        for place in [*PLACES, *COUNTS[name]]
    ],
)
def test_trajectories_equal_a_plain_loop_bit_for_bit(
    name: str, place: tuple[str, int]
) -> None:
    case, (backend, workers) = CASES[name], place
    with Pool(
        case.make,
        SLOTS,
        backend=backend,
        workers=workers,
        seed=ROOT,
        isolation="shared",  # whether they may is not the matter here
        isolate_rng=case.isolated,
    ) as pool:
        for mode, batches in BATCHES.items():
            for min_slots in batches:
                rows = drive(pool, actions_of(name), min_slots, mode, seed=ROOT)
                for slot, truth in enumerate(truth_of(name, mode)):
                    what = f"{mode}, min_slots={min_slots}, slot {slot}"
                    assert_same_rows(rows[slot], truth, what)
