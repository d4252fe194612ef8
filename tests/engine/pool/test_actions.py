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


@pytest.fixture
def actions() -> Actions:
    codec = codec_for(spaces.Box(-1, 1, (2,), np.float32))
    plan = plan_data(SLOTS, codec_for(spaces.Discrete(2)), codec, start=0)
    return Actions(codec, DataViews(plan, memoryview(bytearray(plan.size))))


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
