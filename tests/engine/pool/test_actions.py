"""Actions are written to the block in dtypes that lose nothing."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from gymnasium import spaces

from corral.engine.layout.codec import codec_for
from corral.engine.layout.plan import DataViews, plan_data
from corral.engine.pool.actions import Actions

SLOTS = 3


def actions_of(space: spaces.Space) -> Actions:
    codec = codec_for(space)
    plan = plan_data(SLOTS, codec_for(spaces.Discrete(2)), codec, start=0)
    return Actions(codec, DataViews(plan, memoryview(bytearray(plan.size))))


@pytest.fixture
def actions() -> Actions:
    return actions_of(spaces.Box(-1, 1, (2,), np.float32))


def last_of(actions: Actions, ticket: int) -> list[np.ndarray]:
    return [actions.last(slot, ticket, 1)[0] for slot in range(SLOTS)]


def test_what_was_written_is_read_back(actions):
    batch = np.arange(SLOTS * 2, dtype=np.float32).reshape(SLOTS, 2)
    assert actions.write([batch], tickets=1) == 0
    assert np.array_equal(last_of(actions, 1), batch)


def test_float64_for_a_float32_space_stays_float64(actions):
    batch = np.full((SLOTS, 2), 0.1)
    assert actions.write([batch], tickets=1) != 0
    assert all(np.array_equal(one, [0.1, 0.1]) for one in last_of(actions, 1))


def test_rows_in_both_dtypes_are_told_apart(actions):
    wide, plain = np.full((SLOTS, 2), 0.1), np.full((SLOTS, 2), 0.1, np.float32)
    actions.write([wide], tickets=1)
    actions.write([plain], tickets=2)
    assert last_of(actions, 1)[0].dtype == np.float64
    assert last_of(actions, 2)[0].dtype == np.float32


def test_a_dtype_that_came_out_of_a_pickle_needs_no_second_look(actions, monkeypatch):
    # A space that came from a worker samples in such dtypes: every step would pay.
    batch = np.zeros((SLOTS, 2), pickle.loads(pickle.dumps(np.dtype(np.float32))))
    looked = lambda *arguments: pytest.fail("looked")  # noqa: E731
    monkeypatch.setattr("corral.engine.pool.actions.np.can_cast", looked)
    assert actions.write([batch], tickets=1) == 0


def test_slots_with_tickets_of_their_own_get_rows_of_their_own(actions):
    batch = np.ones((2, 2), np.float32)
    actions.write([batch], tickets=np.array([4, 7]), slots=np.array([0, 2]))
    assert np.array_equal(actions.last(0, 4, 1)[0], [1, 1])
    assert np.array_equal(actions.last(2, 7, 1)[0], [1, 1])


def test_the_last_actions_come_in_order_whatever_their_width_and_place(actions):
    newest = actions.rows + 5  # so that the oldest rows were written over
    for ticket in range(1, newest + 1):
        dtype = np.float64 if ticket % 3 == 0 else np.float32
        actions.write([np.full((SLOTS, 2), ticket, dtype)], tickets=ticket)
    known = actions.last(1, newest, newest)
    assert [int(one[0]) for one in known] == list(range(6, newest + 1))
    assert {one.dtype.name for one in known[::3]} == {"float64"}  # 6, 9, ...
    assert [int(one[0]) for one in actions.last(1, newest, 2)] == [newest - 1, newest]
    assert actions.last(1, newest, 0) == ()


def test_no_action_before_one_that_went_another_way_is_known(actions):
    for ticket in range(1, 6):
        actions.write([np.full((SLOTS, 2), ticket, np.float32)], tickets=ticket)
    actions.skip(np.array([3]), np.array([1]))
    assert [one[0] for one in actions.last(1, 5, 5)] == [4, 5]
    assert [one[0] for one in actions.last(0, 5, 5)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "parts", [{}, {"x": spaces.Discrete(9), "y": spaces.Box(0, 9)}]
)
def test_actions_in_parts_are_read_back_in_parts(parts):
    actions = actions_of(spaces.Dict(parts))
    batch = {name: np.full((SLOTS, *one.shape), 7) for name, one in parts.items()}
    leaves, _ = actions.codec.split(batch or [{}] * SLOTS, SLOTS)
    for ticket in (1, 2):
        actions.write(leaves, tickets=ticket)
    assert actions.last(2, 2, 2) == (dict.fromkeys(parts, 7),) * 2
