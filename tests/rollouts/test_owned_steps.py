"""Steps that are kept share no memory with the block, in part or put together."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from contracts.reference import same
from gymnasium import spaces
from made_steps import DEFAULTS, step_of

from corral import Step
from corral.rollouts.space_rows import SpaceParts, joined, owned, some_of

BOX = spaces.Box(-9, 9, (2,), np.float32)
NESTED = spaces.Dict({"reach": BOX, "word": spaces.Text(9)})


def numbered(slots: list[int], nested: bool = False) -> Step:
    """Every field of every slot tells whose it is."""
    numbers = np.array(slots)
    reach = (numbers[:, None] + np.array([0.25, 0.5])).astype(np.float32)
    words = tuple(f"slot {slot}" for slot in slots)
    values = {name: numbers.astype(dtype) for name, (_, dtype) in DEFAULTS.items()}
    step = step_of(
        slots,
        {"reach": reach, "word": words} if nested else reach,
        final_obs=reach.copy(),
        infos={place: {"of": slot} for place, slot in enumerate(slots) if slot % 2},
        final_infos={place: {"end": slot} for place, slot in enumerate(slots)},
        **values,
    )
    step.previous_action = numbers
    return step


def assert_is(step: Step, slots: list[int], nested: bool) -> None:
    """It tells of these slots, without what is not kept."""
    expected = numbered(slots, nested)
    assert step.final_obs is None and step.previous_action is None
    for name in ("slots", "obs", *DEFAULTS):
        assert same(getattr(step, name), getattr(expected, name)), name
    count = len(slots)
    assert step.infos.to_list(count) == expected.infos.to_list(count)


def assert_no_shared_memory(step: Step, source: Step) -> None:
    for field in fields(Step):
        one, other = getattr(step, field.name), getattr(source, field.name)
        if field.name == "obs" and isinstance(one, dict):
            one, other = one["reach"], other["reach"]
        if isinstance(one, np.ndarray):
            assert not np.shares_memory(one, other), field.name


@pytest.fixture(params=[False, True], ids=["box", "nested"])
def nested(request: Any) -> bool:
    return bool(request.param)


@pytest.fixture
def space(nested: bool) -> SpaceParts:
    return SpaceParts(NESTED if nested else BOX)


def test_an_owned_step_is_the_same_in_memory_of_its_own(
    space: SpaceParts, nested: bool
) -> None:
    step = numbered([0, 1, 2], nested)
    kept = owned(space, step)
    assert_is(kept, [0, 1, 2], nested)
    assert_no_shared_memory(kept, step)
    assert kept.final_infos == {}  # they are of episodes that are over


@pytest.mark.parametrize(
    "where",
    [np.array([1, 3]), np.array([False, True, False, True])],
    ids=["positions", "mask"],
)
def test_some_rows_of_a_step_are_numbered_anew(
    space: SpaceParts, nested: bool, where: Any
) -> None:
    step = numbered([2, 3, 5, 8], nested)
    some = some_of(space, step, where)
    assert_is(some, [3, 8], nested)
    assert_no_shared_memory(some, step)
    assert some.final_infos == {0: {"end": 3}, 1: {"end": 8}}


def test_joined_steps_are_in_the_order_of_their_slots(
    space: SpaceParts, nested: bool
) -> None:
    steps = [numbered([1, 4], nested), numbered([3], nested), numbered([0, 2], nested)]
    whole = joined(space, steps)
    assert_is(whole, [0, 1, 2, 3, 4], nested)
    assert whole.final_infos == {}
