"""Fields lie on cache lines of their own and can be viewed wherever memory is."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from corral.engine.layout.fields import ALIGNMENT, Field, Planner


def test_every_field_starts_on_its_own_cache_line() -> None:
    planner = Planner()
    fields = [
        planner.add(str(length), np.int8, (length,)) for length in (1, 64, 65, 0, 3)
    ]
    assert [field.offset for field in fields] == [0, 64, 128, 256, 256]
    assert planner.size == 320


def test_an_empty_plan_needs_no_memory() -> None:
    assert Planner().size == 0


def test_the_size_is_whole_cache_lines() -> None:
    planner = Planner()
    planner.add("reward", np.float64, (2, 3))
    assert planner.size == ALIGNMENT


def test_a_plan_can_go_on_where_another_ended() -> None:
    planner = Planner(start=65)
    assert planner.add("reward", np.float64, (2, 3)).offset == 128
    assert planner.size == 192


def test_nbytes_counts_the_array_alone() -> None:
    assert Field("reward", np.dtype(np.float64), (2, 3), 0).nbytes == 48
    assert Field("nothing", np.dtype(np.float64), (2, 0), 0).nbytes == 0
    assert Field("number", np.dtype(np.int16), (), 0).nbytes == 2


def test_views_share_the_memory_and_not_each_other() -> None:
    planner = Planner()
    first = planner.add("first", np.float32, (2, 5))
    second = planner.add("second", np.uint8, (7,))
    memory = bytearray(planner.size)
    first.view(memory)[:] = 1.5
    second.view(memory)[:] = 7
    assert first.view(memory).tolist() == [[1.5] * 5] * 2
    assert second.view(memory).tolist() == [7] * 7
    assert memory[second.offset] == 7


def test_a_zero_size_field_at_the_very_end_can_be_viewed() -> None:
    planner = Planner()
    planner.add("first", np.float32, (16,))
    nothing = planner.add("nothing", np.float32, (2, 0, 3))
    assert nothing.offset == planner.size
    assert nothing.view(bytearray(planner.size)).shape == (2, 0, 3)


def test_a_view_of_read_only_memory_is_read_only() -> None:
    field = Planner().add("reward", np.float32, (2,))
    assert not field.view(memoryview(bytes(64))).flags.writeable


def test_a_field_beyond_the_memory_is_refused() -> None:
    field = Planner().add("reward", np.float32, (100,))
    with pytest.raises(TypeError, match="too small"):
        field.view(bytearray(64))


def test_a_field_survives_pickling() -> None:
    field = Planner().add("reward", "f4", np.array([2, 3]))
    copy = pickle.loads(pickle.dumps(field))
    assert copy == field
    view = copy.view(bytearray(64))
    assert view.shape == (2, 3)
    assert view.dtype is np.dtype(np.float32)  # the fast paths test identity


def test_a_field_of_records_keeps_its_names() -> None:
    record = np.dtype([("reward", "f8"), ("valid", "?")], align=True)
    field = Planner().add("record", record, (2,))
    assert field.view(bytearray(64)).dtype == record


def test_a_name_is_planned_once() -> None:
    planner = Planner()
    planner.add("reward", np.float32, ())
    with pytest.raises(AssertionError, match="planned twice"):
        planner.add("reward", np.float32, ())


def test_objects_cannot_be_planned() -> None:
    with pytest.raises(AssertionError, match="objects"):
        Planner().add("info", object, ())
