"""One body for both readouts."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from corral.engine.layout import readout
from corral.engine.layout.readout import Column

DTYPES = ("f8", "f4", "f2", "i8", "i4", "u1", "?", "c16", "u8")
TWINS = ("python", "c")


def copy_out(twin: str) -> Callable[..., Any]:
    if twin == "python":
        return readout.python_copy_out
    return pytest.importorskip("corral.engine.layout._readout").copy_out  # type: ignore[no-any-return]


def to_dicts(twin: str) -> Callable[..., Any]:
    if twin == "python":
        return readout.python_to_dicts
    return pytest.importorskip("corral.engine.layout._readout").to_dicts  # type: ignore[no-any-return]


def column(index: int, array: NDArray[Any]) -> Column:
    kind = array.dtype.type
    return Column(index, (f"key{index}",), kind, array.dtype, array.shape[1:], 0)


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[NDArray[Any]], NDArray[np.uint8]]:
    """Arrays of one row, and which slots have what."""
    slots, count = draw(st.integers(1, 5)), draw(st.integers(0, 4))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrays = []
    for _ in range(count):
        dtype = np.dtype(draw(st.sampled_from(DTYPES)))
        shape = (slots, *draw(st.sampled_from([(), (3,), (2, 2), (0,)])))
        arrays.append(generator.integers(0, 2, shape).astype(dtype))
    presence = generator.integers(0, 2, (slots, count + 2)).astype(np.uint8)
    return arrays, presence


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=60, deadline=None)
@given(row=rows())
def test_what_is_present_is_copied_and_the_rest_is_zero(
    twin: str, row: tuple[list[NDArray[Any]], NDArray[np.uint8]]
) -> None:
    arrays, presence = row
    columns = [column(index, array) for index, array in enumerate(arrays)]
    read = copy_out(twin)(columns, arrays, presence)
    expected = [one for one in columns if presence[:, one.index].any()]
    assert [one for one, _, _ in read] == expected
    for one, values, mask in read:
        array, there = arrays[one.index], presence[:, one.index].astype(bool)
        assert mask.dtype == np.bool_ and mask.tolist() == there.tolist()
        assert values.dtype == array.dtype and values.shape == array.shape
        assert not np.shares_memory(values, array)
        assert values[there].tobytes() == array[there].tobytes()
        assert not values[~there].any()


@pytest.mark.parametrize("twin", TWINS)
def test_what_was_copied_can_be_written_to(twin: str) -> None:
    array, presence = np.ones(2), np.ones((2, 1), np.uint8)
    [(_, values, mask)] = copy_out(twin)([column(0, array)], [array], presence)
    values[0], mask[0] = 5.0, False
    assert array.tolist() == [1.0, 1.0] and presence.tolist() == [[1], [1]]


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("plain", [False, True])
def test_values_are_as_numpy_or_python_has_them(
    twin: str, dtype: str, plain: bool
) -> None:
    array = np.array([0, 1, 1], dtype)
    infos = to_dicts(twin)(("key",), (array,), bytes([plain]), 3)
    expected = array.tolist() if plain else list(array)
    assert [info["key"] for info in infos] == expected
    kinds = [type(info["key"]) for info in infos]
    assert kinds == [type(value) for value in expected]


@pytest.mark.parametrize("twin", TWINS)
def test_keys_keep_their_order_and_no_two_dicts_are_one(twin: str) -> None:
    made = object()
    objects = np.array([made, None], dtype=object)
    listed: list[Any] = [[1], [2]]
    strided = np.arange(4.0)[::2]
    infos = to_dicts(twin)(
        ("z", "a", "m"), (objects, listed, strided), bytes([0, 0, 1]), 2
    )
    assert [list(info) for info in infos] == [["z", "a", "m"]] * 2
    assert infos[0]["z"] is made and infos[1]["z"] is None
    assert infos[0]["a"] is listed[0]
    assert [info["m"] for info in infos] == [0.0, 2.0]
    infos[0]["new"] = 1
    assert "new" not in infos[1]


@pytest.mark.parametrize("twin", TWINS)
def test_without_keys_the_dicts_are_empty_ones(twin: str) -> None:
    infos = to_dicts(twin)((), (), b"", 2)
    assert infos == [{}, {}] and infos[0] is not infos[1]


@pytest.mark.parametrize("twin", TWINS)
def test_the_collector_finds_a_dict_that_holds_itself(twin: str) -> None:
    class Held:
        alive = 0

        def __init__(self) -> None:
            Held.alive += 1

        def __del__(self) -> None:
            Held.alive -= 1

    held: Any = Held()
    [info] = to_dicts(twin)(("key",), ([held],), b"\0", 1)
    held.info = info
    del held, info
    gc.collect()
    assert Held.alive == 0


@pytest.mark.parametrize("twin", TWINS)
def test_nothing_is_kept_of_what_was_read(twin: str) -> None:
    value, key = object(), "a key of its own"
    array, presence = np.ones(3), np.ones((3, 1), np.uint8)
    one = column(0, array)
    watched = (value, key, array, presence, one)
    before = [sys.getrefcount(each) for each in watched]
    for _ in range(100):
        to_dicts(twin)((key,), ([value] * 3,), b"\0", 3)
        copy_out(twin)([one], [array], presence)
    assert [sys.getrefcount(each) for each in watched] == before


@pytest.mark.parametrize(
    ("keys", "sources", "plain", "count"),
    [
        (("a",), (), b"\0", 2),
        (("a",), ([1],), b"\0", 2),
        (("a",), (np.zeros(3),), b"\0", 2),
        (("a",), (np.zeros((2, 2)),), b"\0", 2),
        (("a",), ([1, 2],), b"", 2),
        (("a",), ("no", "list"), b"\0", 2),
        (("a",), ([1, 2],), b"\0", -1),
    ],
)
def test_the_c_twin_refuses_what_does_not_fit(
    keys: Any, sources: Any, plain: Any, count: Any
) -> None:
    with pytest.raises(ValueError, match=r"differ|negative"):
        to_dicts("c")(keys, sources, plain, count)


def test_the_c_twin_reads_no_array_that_is_not_a_row() -> None:
    presence = np.ones((2, 1), np.uint8)
    for array in (np.zeros(3), np.zeros((2, 4))[:, ::2], np.zeros(2, object)):
        with pytest.raises(ValueError, match="not a row of the block"):
            copy_out("c")([column(0, array)], [array], presence)
    with pytest.raises(ValueError, match="differ"):
        copy_out("c")([column(0, np.zeros(2))], [], presence)
    with pytest.raises(TypeError, match="copy_out"):
        copy_out("c")([], [])


def test_an_unhashable_key_raises_and_leaves_nothing() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        to_dicts("c")(([],), ([1, 2],), b"\0", 2)
