"""How many actions of each slot a block keeps."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from corral.engine.layout.codec import codec_for
from corral.engine.layout.plan import (
    ACTION_BYTES,
    MAX_ACTION_ROWS,
    MIN_ACTION_ROWS,
    DataViews,
    plan_data,
)

SPACES = [
    spaces.Discrete(4),
    spaces.Box(-1, 1, (8,), np.float32),
    spaces.Box(-1, 1, (1000,), np.float64),
    spaces.Box(0, 255, (84, 84), np.uint8),
    spaces.Box(-1, 1, (10_000_000,), np.float32),
    spaces.Dict(a=spaces.Discrete(2), b=spaces.MultiBinary(7)),
    spaces.Text(4),
]
OBS = codec_for(spaces.Discrete(2))


@pytest.mark.parametrize("slots", [1, 3, 64, 4096])
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_action_rows_are_a_power_of_two_within_bounds(space, slots) -> None:
    plan = plan_data(slots, OBS, codec_for(space), start=0)
    rows = plan.action_rows
    assert MIN_ACTION_ROWS <= rows <= MAX_ACTION_ROWS
    assert rows & (rows - 1) == 0
    size = sum(field.nbytes for field in (*plan.action, *plan.wide_action))
    assert size <= ACTION_BYTES or rows == MIN_ACTION_ROWS
    assert 2 * size > ACTION_BYTES or rows == MAX_ACTION_ROWS
    assert all(field.shape[0] == rows for field in (*plan.action, *plan.wide_action))


def test_a_ticket_finds_its_row_by_the_mask() -> None:
    plan = plan_data(2, OBS, codec_for(spaces.Box(0, 1, (99, 999))), start=0)
    views = DataViews(plan, memoryview(bytearray(plan.size)))
    assert views.action_mask + 1 == plan.action_rows == len(views.action[0])
    assert (views.action_mask + 3) & views.action_mask == 2
