"""Batches of any space are taken apart, put together and kept by row and slot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from contracts.reference import same
from gymnasium import spaces

from corral import register_codec
from corral.engine.layout.codec import codec_for
from corral.engine.layout.composite import PackedCodec
from corral.rollouts.space_rows import SpacePart, SpaceParts, SpaceRows

BOX = spaces.Box(-1, 1, (2,), np.float32)
ROBOT = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (3, 2), np.uint8),
        "hand": spaces.Tuple([BOX, spaces.Text(9), spaces.Discrete(5)]),
    }
)
WORDS = ("go", "stop", "on")


class PackedDict(spaces.Dict):
    """A Dict whose values lie in the block as bytes."""


register_codec(PackedDict, lambda space: PackedCodec(codec_for(spaces.Dict(space))))


def robot_batch(first: int = 0, count: int = 3) -> Any:
    """A batch of ROBOT as a pool returns it, with numbers that tell values apart."""
    numbers = np.arange(first, first + count)
    camera = numbers[:, None, None] * 10 + np.arange(6).reshape(3, 2)
    reach = numbers[:, None] + np.array([0.25, 0.5])
    return {
        "camera": camera.astype(np.uint8),
        "hand": (reach.astype(np.float32), WORDS[:count], numbers % 5),
    }


# Parts --------------------------------------------------------------------------------


def test_the_parts_of_a_nested_space_are_its_leaves_depth_first() -> None:
    parts = SpaceParts(ROBOT).parts
    assert [part.path for part in parts] == [
        ("camera",),
        ("hand", 0),
        ("hand", 1),
        ("hand", 2),
    ]
    assert [part.name for part in parts] == ["camera", "hand.0", "hand.1", "hand.2"]
    assert [part.dtype for part in parts] == [np.uint8, np.float32, object, np.int64]
    assert [part.shape for part in parts] == [(3, 2), (2,), (), ()]


@pytest.mark.parametrize(
    ("space", "dtype", "shape"),
    [
        (BOX, np.float32, (2,)),
        (spaces.Discrete(5), np.int64, ()),
        (spaces.MultiBinary(3), np.int8, (3,)),
        (spaces.MultiDiscrete([2, 3]), np.int64, (2,)),
    ],
)
def test_a_space_of_one_array_is_its_only_part(
    space: Any, dtype: Any, shape: tuple[int, ...]
) -> None:
    parts = SpaceParts(space)
    assert parts.plain
    assert parts.parts == (SpacePart((), np.dtype(dtype), shape),)
    assert parts.parts[0].name == ""


def test_values_without_a_fixed_size_are_kept_as_objects() -> None:
    parts = SpaceParts(spaces.Text(9))
    assert not parts.plain
    assert parts.parts == (SpacePart((), np.dtype(object), ()),)
    (array,) = parts.split(["go", "stop"], 2)
    assert array.dtype == object and array.tolist() == ["go", "stop"]


def test_lists_among_the_values_stay_values() -> None:
    parts = SpaceParts(spaces.Sequence(BOX))
    batch = ((1, 2), (3, 4))  # numpy would make four numbers of them
    (array,) = parts.split(batch, 2)
    assert array.shape == (2,) and array[1] == (3, 4)
    assert parts.batch([array]) == batch


def test_a_packed_space_has_the_parts_of_what_is_packed() -> None:
    space = PackedDict({"arm": BOX, "grip": spaces.Discrete(2)})
    parts = SpaceParts(space)
    assert [part.path for part in parts.parts] == [("arm",), ("grip",)]
    arrays = [np.ones((3, 2), np.float32), np.zeros(3, np.int64)]
    assert same(parts.batch(arrays), {"arm": arrays[0], "grip": arrays[1]})


# Batches ------------------------------------------------------------------------------


def arrays_of(parts: SpaceParts, batch: Any) -> list[Any]:
    return [part.array_of(batch) for part in parts.parts]


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_taken_apart_and_put_together_is_the_same(count: int) -> None:
    parts, batch = SpaceParts(ROBOT), robot_batch(count=count)
    assert same(parts.batch(arrays_of(parts, batch)), batch)
    plain = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert SpaceParts(BOX).batch([plain]) is plain


def test_objects_are_a_tuple_in_a_batch_and_an_array_in_rows() -> None:
    parts = SpaceParts(ROBOT)
    arrays = arrays_of(parts, robot_batch())
    assert parts.batch(arrays)["hand"][1] == WORDS
    many = parts.joined([np.stack([array, array]) for array in arrays])
    assert many["camera"].shape == (2, 3, 3, 2)
    assert many["hand"][1].tolist() == [list(WORDS)] * 2


@pytest.mark.parametrize("space", [BOX, ROBOT], ids=["box", "nested"])
def test_a_copy_shares_no_memory_with_the_batch(space: Any) -> None:
    parts = SpaceParts(space)
    batch = robot_batch() if space is ROBOT else np.ones((3, 2), np.float32)
    copied = parts.copied(batch)
    assert same(copied, batch)
    for part in parts.parts:
        if part.dtype != object:
            assert not np.shares_memory(part.of(copied), part.of(batch)), part.name


def test_one_value_of_a_batch_is_a_copy() -> None:
    parts, batch = SpaceParts(ROBOT), robot_batch()
    values = parts.value_at(batch, 1)
    batch["camera"][:] = 0
    batch["hand"][0][:] = 0
    batch["hand"][2][:] = 0
    camera, reach, word, grip = values
    assert camera.tolist() == [[10, 11], [12, 13], [14, 15]]
    assert (reach.tolist(), word, grip) == ([1.25, 1.5], "stop", 1)


def test_one_value_per_slot_and_one_batch_split_alike() -> None:
    parts, batch = SpaceParts(ROBOT), robot_batch()
    each = [
        {
            "camera": batch["camera"][slot],
            "hand": tuple(column[slot] for column in batch["hand"]),
        }
        for slot in range(3)
    ]
    arrays = arrays_of(parts, batch)
    for given in (batch, each, tuple(each)):
        split = parts.split(given, 3)
        assert [one.dtype for one in split] == [one.dtype for one in arrays]
        assert all(map(np.array_equal, split, arrays))


# Rows ---------------------------------------------------------------------------------


def test_rows_begin_as_zeros_in_the_dtypes_of_the_space() -> None:
    rows = SpaceRows(SpaceParts(ROBOT), 4, 3)
    assert [array.shape for array in rows.arrays] == [
        (4, 3, 3, 2),
        (4, 3, 2),
        (4, 3),
        (4, 3),
    ]
    assert [array.dtype for array in rows.arrays] == [
        np.uint8,
        np.float32,
        object,
        np.int64,
    ]
    assert not any(array.any() for array in rows.arrays)


def test_rows_have_another_dtype_where_one_is_asked_for() -> None:
    wide = np.dtype(np.float64)
    rows = SpaceRows(
        SpaceParts(ROBOT),
        1,
        1,
        lambda part: wide if part.name == "hand.0" else part.dtype,
    )
    assert [array.dtype for array in rows.arrays] == [
        np.uint8,
        np.float64,
        object,
        np.int64,
    ]


@pytest.mark.parametrize("space", [BOX, ROBOT], ids=["box", "nested"])
def test_what_is_written_stays_when_the_batch_changes(space: Any) -> None:
    rows = SpaceRows(SpaceParts(space), 2, 3)
    batch = robot_batch(1) if space is ROBOT else np.full((3, 2), 7, np.float32)
    rows.write(1, batch)
    numbers = batch["camera"] if space is ROBOT else batch
    before = numbers.copy()
    numbers[:] = 0
    first = rows.arrays[0]
    assert same(first[1], before)
    assert not first[0].any()


def test_some_slots_are_written_each_in_its_own_row() -> None:
    rows = SpaceRows(SpaceParts(ROBOT), 3, 4)
    at = np.array([2, 0, 1]), np.array([0, 1, 3])
    rows.write(at, robot_batch(1))
    words = rows.whole()["hand"][1]
    assert words.tolist() == [
        [0, "stop", 0, 0],
        [0, 0, 0, "on"],
        ["go", 0, 0, 0],
    ]
    assert rows.whole()["hand"][2].tolist() == [
        [0, 2, 0, 0],
        [0, 0, 0, 3],
        [1, 0, 0, 0],
    ]


def test_the_rows_are_handed_out_without_a_copy() -> None:
    rows = SpaceRows(SpaceParts(ROBOT), 2, 3)
    whole = rows.whole()
    rows.write(0, robot_batch(1))
    assert same(whole["camera"][0], robot_batch(1)["camera"])
    plain = SpaceRows(SpaceParts(BOX), 2, 3)
    assert plain.whole() is plain.arrays[0]


def test_taking_a_batch_shows_what_is_stored_of_it() -> None:
    rows = SpaceRows(SpaceParts(BOX), 2, 3)
    batch = np.full((3, 2), 0.5, np.float32)
    (stored,) = rows.take(1, batch, 3)
    assert same(stored, batch)
    assert np.shares_memory(stored, rows.arrays[0])  # a whole row needs no copy
    assert not np.shares_memory(stored, batch)
    at = np.array([0, 1]), np.array([2, 0])
    (stored,) = rows.take(at, batch[:2] + 1, 2)
    assert stored.tolist() == [[1.5, 1.5]] * 2


@pytest.mark.parametrize("given", [0.1, [0.1]], ids=["array", "list"])
def test_wider_numbers_widen_the_rows_and_lose_nothing(given: Any) -> None:
    rows = SpaceRows(SpaceParts(BOX), 2, 3)
    rows.take(0, np.full((3, 2), 0.1, np.float32), 3)
    tenth = np.full((3, 2), 0.1)
    (stored,) = rows.take(1, tenth if given == 0.1 else tenth.tolist(), 3)
    assert stored.dtype == np.float64 and (stored == 0.1).all()
    narrow = float(np.float32(0.1))
    assert rows.whole()[:, 0, 0].tolist() == [narrow, 0.1]
    rows.take(1, np.full((3, 2), 0.1, np.float32), 3)  # narrow ones fit as well
    assert rows.whole()[1, 0, 0] == narrow


def test_actions_of_a_nested_space_are_taken_in_either_form() -> None:
    rows = SpaceRows(SpaceParts(ROBOT), 2, 3)
    batch = robot_batch()
    each = [
        {"camera": camera, "hand": (reach, word, grip)}
        for camera, reach, word, grip in zip(
            batch["camera"], *batch["hand"], strict=True
        )
    ]
    stored = rows.take(0, batch, 3)
    assert all(map(np.array_equal, stored, rows.take(1, each, 3)))
    assert rows.whole()["hand"][1].tolist() == [list(WORDS)] * 2
