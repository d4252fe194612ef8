"""Values by slot and row come back as they were written, in memory of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contracts.reference import same
from gymnasium import spaces

from corral.errors import OptionError
from corral.rollouts.space_rows import SpaceParts
from corral.rollouts.trajectories import SlotRows

NESTED = spaces.Dict(
    {"reach": spaces.Box(-9, 9, (2,), np.float32), "word": spaces.Text(9)}
)


def at(*numbers: int) -> Any:
    return np.array(numbers, np.intp)


def test_each_slot_has_rows_of_its_own() -> None:
    store = SlotRows(slots=3, rows=2)
    values = np.array([1.0, 2.0])
    store.write("value", at(0, 2), at(1, 0), values)
    values[:] = 0
    assert store.read("value", 0, slice(1, 2)).tolist() == [1]
    assert store.read("value", 2, slice(0, 1)).tolist() == [2]


def test_a_store_grows_with_its_rows_and_keeps_them() -> None:
    store = SlotRows(slots=2, rows=1)
    for row in range(40):
        store.write("value", at(0, 1), at(row, row), np.array([row, -row]))
    assert store.read("value", 1, slice(0, 40)).tolist() == [-row for row in range(40)]


def test_what_is_read_changes_nothing() -> None:
    store = SlotRows(slots=1, rows=2)
    store.write("value", at(0), at(0), np.array([5.0]))
    store.read("value", 0, slice(0, 1))[:] = 0
    assert store.read("value", 0, slice(0, 1)).tolist() == [5]


def test_the_widest_dtype_is_kept() -> None:
    store = SlotRows(slots=1, rows=3)
    store.write("value", at(0), at(0), np.array([0.1], np.float32))
    store.write("value", at(0), at(1), np.array([0.1]))
    store.write("value", at(0), at(2), np.array([True]))
    assert store.read("value", 0, slice(0, 3)).tolist() == [
        float(np.float32(0.1)),
        0.1,
        1.0,
    ]


def test_another_shape_is_refused() -> None:
    store = SlotRows(slots=1)
    store.write("value", at(0), at(0), np.zeros((1, 2)))
    with pytest.raises(OptionError, match=r"value has shape \(3,\) per slot; before"):
        store.write("value", at(0), at(1), np.zeros((1, 3)))


def test_a_moved_row_is_the_first_of_its_slot_alone() -> None:
    store = SlotRows(slots=2, rows=2)
    store.write("value", at(0, 1), at(0, 0), np.array([1, 2]))
    store.write("value", at(0, 1), at(1, 1), np.array([3, 4]))
    store.move(0, 1)
    assert [int(store.read("value", slot, slice(0, 1))[0]) for slot in (0, 1)] == [3, 2]


def test_values_of_a_nested_space_come_back_as_a_batch() -> None:
    store, space = SlotRows(2, rows=1), SpaceParts(NESTED)
    for row, word in enumerate(("go", "stop")):
        reach = np.full((2, 2), row, np.float32)
        batch = {"reach": reach, "word": (word, "other")}
        store.write_parts("obs", at(0, 1), at(row, row), space.split(batch, 2))
    reach = np.array([[0, 0], [1, 1]], np.float32)
    both = store.read_batch("obs", space, 0, slice(0, 2))
    assert same(both, {"reach": reach, "word": ("go", "stop")})
    store.move(0, 1)
    assert store.read_batch("obs", space, 0, slice(0, 1))["word"] == ("stop",)


def test_a_space_of_which_nothing_was_written_reads_as_an_empty_batch() -> None:
    empty = SlotRows(2).read_batch("final_obs", SpaceParts(NESTED), 1, slice(0, 0))
    assert same(empty, {"reach": np.empty((0, 2), np.float32), "word": ()})
