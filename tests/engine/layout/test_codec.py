"""Codecs give back what Gymnasium would have given, and refuse what does not fit."""

from __future__ import annotations

import inspect
import pickle
import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import (
    batch_space,
    concatenate,
    create_empty_array,
    iterate,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.engine.layout.codec import Codec, StandIn, codec_for, register_codec
from corral.engine.layout.contract import Leaf
from corral.engine.layout.leaves import MailedCodec
from corral.errors import SpaceMismatch

exactly = settings(derandomize=True, deadline=None, max_examples=100, database=None)


class Colours(gymnasium.Space[str]):
    """A custom space: Corral knows nothing about it."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return str(self.np_random.choice(["red", "green", "blue"]))

    def contains(self, x: Any) -> bool:
        return x in ("red", "green", "blue")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Colours)


class Pixels(spaces.Box):
    """A Box with another name."""


# ---------------------------------------------------------------- random spaces

FLOATS = [np.float16, np.float32, np.float64]
INTEGERS = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
HAS_DISCRETE_DTYPE = "dtype" in inspect.signature(spaces.Discrete).parameters
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def boxes(draw: st.DrawFn) -> spaces.Box:
    dtype = draw(st.sampled_from([*FLOATS, *INTEGERS, *UNSIGNED, np.bool_]))
    low = -3 if dtype in FLOATS + INTEGERS else 0
    high = 1 if dtype is np.bool_ else 100
    kind = draw(st.sampled_from([spaces.Box, Pixels]))
    box: spaces.Box = kind(low, high, draw(shapes), dtype)
    return box


@st.composite
def discretes(draw: st.DrawFn) -> spaces.Discrete:
    options: dict[str, Any] = {"start": draw(st.integers(-5, 5))}
    if HAS_DISCRETE_DTYPE:
        options["dtype"] = draw(st.sampled_from(INTEGERS))
    return spaces.Discrete(draw(st.integers(1, 9)), **options)


plain_spaces = st.one_of(
    boxes(),
    discretes(),
    st.builds(
        spaces.MultiDiscrete,
        st.sampled_from([[3], [2, 5], [[2, 3], [4, 5]]]),
        dtype=st.sampled_from(INTEGERS),
    ),
    st.builds(spaces.MultiBinary, st.sampled_from([3, [2, 2]])),
)
mailed_spaces = st.sampled_from(
    [
        spaces.Text(5, min_length=0),
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
        spaces.OneOf([spaces.Discrete(3), spaces.Box(0, 1, (2,))]),
        Colours(),
    ]
)


def join(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
        # Pairs keep the order they are given in; dicts are sorted by Gymnasium.
        st.dictionaries(st.sampled_from("zaqb"), parts, min_size=1, max_size=3).map(
            lambda members: spaces.Dict(list(members.items()))
        ),
        st.dictionaries(st.sampled_from("zaqb"), parts, min_size=1, max_size=3).map(
            spaces.Dict
        ),
    )


all_spaces = st.recursive(plain_spaces | mailed_spaces, join, max_leaves=6)


# ---------------------------------------------------------------- helpers


def blank(codec: Codec, slots: int) -> list[Any]:
    return [np.zeros((2, slots, *leaf.shape), leaf.dtype) for leaf in codec.leaves]


def round_trip(codec: Codec, values: list[Any], row: int = 1) -> list[Any]:
    """Encode all values, then decode all of them."""
    arrays = blank(codec, len(values))
    encode, decode = codec.encoder(arrays), codec.decoder(arrays)
    mailed = [encode(row, slot, value) for slot, value in enumerate(values)]
    assert all((letters is None) == (codec.mailed == 0) for letters in mailed)
    values = [decode(row, slot, letters) for slot, letters in enumerate(mailed)]
    walk = codec.walker(arrays)
    assert (walk is None) == (codec.mailed > 0 or not arrays)
    if walk is not None:
        assert_same(list(walk(row)), values)
    return values


def encode_one(space: spaces.Space[Any], value: Any) -> Any:
    return round_trip(codec_for(space), [value])[0]


def gymnasium_batch(space: spaces.Space[Any], values: list[Any]) -> Any:
    empty: Any = create_empty_array(space, len(values))
    return concatenate(space, values, empty)


def gymnasium_values(space: spaces.Space[Any], batch: Any, count: int) -> list[Any]:
    return list(iterate(batch_space(space, count), batch))


def assert_same(ours: Any, theirs: Any) -> None:
    """Equal in value, type, dtype and shape; the order of keys is tested apart.

    Gymnasium sorts the keys of a batched Dict space even where the single space is
    not sorted, so its iterate and its concatenate disagree about their order.
    """
    assert type(ours) is type(theirs)
    if isinstance(theirs, (np.ndarray, np.generic)):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert ours.tobytes() == theirs.tobytes()
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for our_part, their_part in zip(ours, theirs, strict=True):
            assert_same(our_part, their_part)
    else:
        assert ours == theirs


def refused(text: str) -> Any:
    return pytest.raises(SpaceMismatch, match=f"^{re.escape(text)}")


# ---------------------------------------------------------------- against Gymnasium


@exactly
@given(all_spaces, st.integers(1, 4), st.integers(0, 99))
def test_what_was_encoded_decodes_as_gymnasium_iterates(
    space: spaces.Space[Any], count: int, seed: int
) -> None:
    space.seed(seed)
    values = [space.sample() for _ in range(count)]
    batch = gymnasium_batch(space, values)
    ours = round_trip(codec_for(space), values)
    assert_same(ours, gymnasium_values(space, batch, count))


@exactly
@given(all_spaces, st.integers(1, 4), st.integers(0, 99))
def test_assembled_batches_are_what_gymnasium_concatenates(
    space: spaces.Space[Any], count: int, seed: int
) -> None:
    space.seed(seed)
    values = [space.sample() for _ in range(count)]
    codec = codec_for(space)
    arrays = blank(codec, count)
    encode = codec.encoder(arrays)
    mailed = [encode(0, slot, value) or [] for slot, value in enumerate(values)]
    columns = [tuple(column) for column in zip(*mailed, strict=True)]
    batch = codec.assemble([array[0] for array in arrays], columns)
    assert_same(batch, gymnasium_batch(space, values))


def act(codec: Codec, batch: Any, count: int) -> list[Any]:
    """What the envs receive when the caller gives `batch`."""
    leaf_batches, columns = codec.split(batch, count)
    assert [part.shape for part in leaf_batches] == [
        (count, *leaf.shape) for leaf in codec.leaves
    ]
    arrays = blank(codec, count)
    for array, part in zip(arrays, leaf_batches, strict=True):
        np.copyto(array[0], part, casting="same_kind")
    decode = codec.decoder(arrays)
    return [
        decode(0, slot, [column[slot] for column in columns]) for slot in range(count)
    ]


@exactly
@given(all_spaces, st.integers(1, 4), st.integers(0, 99))
def test_split_actions_reach_the_envs_as_gymnasium_iterates(
    space: spaces.Space[Any], count: int, seed: int
) -> None:
    actions = batch_space(space, count)
    actions.seed(seed)
    batch = actions.sample()
    ours = act(codec_for(space), batch, count)
    assert_same(ours, gymnasium_values(space, batch, count))


@exactly
@given(all_spaces, st.integers(1, 4), st.integers(0, 99))
def test_a_list_of_single_actions_is_split_too(
    space: spaces.Space[Any], count: int, seed: int
) -> None:
    space.seed(seed)
    values = [space.sample() for _ in range(count)]
    ours = act(codec_for(space), values, count)
    batch = gymnasium_batch(space, values)
    assert_same(ours, gymnasium_values(space, batch, count))


@exactly
@given(all_spaces)
def test_codecs_of_both_processes_agree(space: spaces.Space[Any]) -> None:
    codec = codec_for(space)
    for other in (
        codec_for(pickle.loads(pickle.dumps(space))),
        pickle.loads(pickle.dumps(codec)),
    ):
        assert other.leaves == codec.leaves
        assert other.mailed == codec.mailed


# ---------------------------------------------------------------- leaves


def test_leaves_follow_the_spaces_own_key_order() -> None:
    pairs = [("z", spaces.Discrete(2)), ("a", spaces.Box(0, 1, (3,)))]
    nested = spaces.Dict([("outer", spaces.Tuple([spaces.Dict(pairs)]))])
    assert codec_for(nested).leaves == (
        Leaf(("outer", 0, "z"), np.dtype(np.int64), ()),
        Leaf(("outer", 0, "a"), np.dtype(np.float32), (3,)),
    )


def test_keys_come_back_in_the_spaces_own_order() -> None:
    space = spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Discrete(3))])
    codec = codec_for(space)
    assert list(encode_one(space, {"a": 1, "z": 1})) == ["z", "a"]
    batch = codec.assemble([np.zeros(1), np.ones(1)], [])
    theirs = gymnasium_batch(space, [{"a": 1, "z": 0}])
    assert list(batch) == list(theirs) == ["z", "a"]


def test_values_may_come_in_another_key_order() -> None:
    space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(9)})
    assert list(encode_one(space, {"b": 7, "a": 1}).items()) == [("a", 1), ("b", 7)]


def test_fixed_and_mailed_leaves_mix() -> None:
    inner = spaces.Tuple([spaces.Text(3), spaces.Discrete(4), Colours()])
    space = spaces.Dict({"x": spaces.Box(0, 1, (2,)), "y": inner, "z": spaces.Text(2)})
    codec = codec_for(space)
    assert (len(codec.leaves), codec.mailed) == (2, 3)
    arrays = blank(codec, 1)
    value = {"x": np.ones(2, np.float32), "y": ("abc", 3, "red"), "z": "no"}
    assert codec.encoder(arrays)(0, 0, value) == ["abc", "red", "no"]


def test_empty_spaces_have_no_leaves() -> None:
    assert encode_one(spaces.Dict({}), {}) == {}
    assert encode_one(spaces.Tuple([]), ()) == ()
    assert codec_for(spaces.Dict({})).split([{}, {}], 2) == ([], [])
    beside = spaces.Dict({"a": spaces.Tuple([]), "b": spaces.Discrete(3)})
    assert encode_one(beside, {"a": (), "b": 2}) == {"a": (), "b": 2}


def test_what_is_no_space_at_all_is_mailed() -> None:
    assert isinstance(codec_for(None), MailedCodec)


def test_only_the_addressed_row_and_slot_change() -> None:
    codec = codec_for(spaces.Box(0, 1, (2,)))
    (array,) = arrays = blank(codec, 3)
    codec.encoder(arrays)(1, 2, np.ones(2, np.float32))
    assert np.argwhere(array[..., 0]).tolist() == [[1, 2]]


def test_assembling_copies_nothing() -> None:
    space = spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Discrete(2)})
    codec = codec_for(space)
    arrays = blank(codec, 3)
    batch = codec.assemble([array[1] for array in arrays], [])
    assert np.shares_memory(batch["a"], arrays[0])
    assert np.shares_memory(batch["b"], arrays[1])


def test_decoded_values_are_the_envs_own() -> None:
    codec = codec_for(spaces.Box(0, 1, (2,)))
    arrays = blank(codec, 1)
    value = codec.decoder(arrays)(0, 0, None)
    arrays[0][:] = 1
    assert value.tolist() == [0, 0]
    assert value.flags.writeable


def test_walked_values_are_the_envs_own_too() -> None:
    codec = codec_for(spaces.Box(0, 1, (2,)))
    arrays = blank(codec, 2)
    walk = codec.walker(arrays)
    assert walk is not None
    first, second = walk(0)
    arrays[0][:] = 1
    first[:] = 7
    assert second.tolist() == [0, 0]
    assert arrays[0].tolist() == [[[1, 1], [1, 1]]] * 2


def test_only_a_single_array_is_plain() -> None:
    assert codec_for(spaces.Box(0, 1, (2,))).plain
    assert not codec_for(spaces.Tuple([spaces.Box(0, 1, (2,))])).plain
    assert not codec_for(spaces.Text(3)).plain
    assert not points_codec(Points()).plain


# ---------------------------------------------------------------- what fits


class Labelled(np.ndarray):
    """A subclass of ndarray, as some envs return."""


def frozen(array: Any) -> Any:
    array.flags.writeable = False
    return array


GRID = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    "value",
    [
        GRID,
        GRID.astype(np.float64),
        GRID.astype(np.float16),
        GRID.astype(np.int64),
        GRID.astype(">f4"),
        GRID.tolist(),
        tuple(map(tuple, GRID.astype(int).tolist())),
        np.asfortranarray(GRID),
        np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2] / 2,
        GRID[::-1][::-1],
        GRID.view(Labelled),
        frozen(GRID.copy()),
        np.ma.masked_array(GRID),
        pickle.loads(pickle.dumps(GRID)),
    ],
)
def test_anything_of_the_same_kind_and_shape_is_stored(value: Any) -> None:
    stored = encode_one(spaces.Box(-9, 9, (2, 3)), value)
    assert_same(stored, np.array(value, np.float32).reshape(2, 3))
    np.testing.assert_array_equal(stored, np.asarray(value))


def test_nan_and_values_out_of_bounds_pass() -> None:
    stored = encode_one(spaces.Box(0, 1, (3,)), np.array([np.nan, np.inf, -9]))
    np.testing.assert_array_equal(stored, [np.nan, np.inf, -9])
    assert encode_one(spaces.Discrete(2), 17) == 17


@pytest.mark.parametrize(
    "value", [-3, np.int64(-3), np.int8(-3), np.array(-3), np.array(-3, np.int32)]
)
def test_discrete_stores_the_value_itself(value: Any) -> None:
    stored = encode_one(spaces.Discrete(4, start=-3), value)
    assert_same(stored, np.int64(-3))


def test_booleans_are_integers_and_integers_are_floats() -> None:
    assert_same(encode_one(spaces.Discrete(2), True), np.int64(1))
    assert_same(encode_one(spaces.Discrete(2), np.bool_(True)), np.int64(1))
    assert_same(encode_one(spaces.Box(0, 9, ()), 3), np.float32(3))


def test_a_box_without_axes_is_a_scalar() -> None:
    space = spaces.Box(0, 1, ())
    for value in (0.5, np.float32(0.5), np.float64(0.5), np.array(0.5)):
        assert_same(encode_one(space, value), np.float32(0.5))


def test_python_integers_fit_unsigned_leaves() -> None:
    pixels = spaces.Box(0, 255, (3,), np.uint8)
    assert_same(encode_one(pixels, [0, 7, 255]), np.array([0, 7, 255], np.uint8))


def test_an_empty_list_fills_an_empty_box() -> None:
    assert encode_one(spaces.Box(0, 9, (0,), np.int64), []).shape == (0,)


def test_mappings_and_sequences_of_other_types_are_read() -> None:
    pair = spaces.Dict({"a": spaces.Discrete(9), "b": spaces.Discrete(9)})
    assert encode_one(pair, OrderedDict(b=2, a=1)) == {"a": 1, "b": 2}
    twice = spaces.Tuple([spaces.Discrete(9)] * 2)
    assert encode_one(twice, [1, 2]) == (1, 2)
    assert encode_one(twice, np.array([1, 2])) == (1, 2)


# ---------------------------------------------------------------- what does not fit

RGB = spaces.Dict({"rgb": spaces.Box(0, 255, (84, 84, 3), np.uint8)})
PAIR = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.Discrete(2)])})
VECTOR = spaces.Box(0, 1, (3,))
CHOICE = spaces.Discrete(2)
GRADES = spaces.Box(0, 9, (3,), np.int64)


@pytest.mark.parametrize(
    ("space", "value", "text"),
    [
        (
            RGB,
            {"rgb": np.zeros((84, 84), np.uint8)},
            "obs['rgb'] is uint8 (84, 84); its space says uint8 (84, 84, 3)",
        ),
        (VECTOR, None, "obs is None; its space says float32 (3,)"),
        (VECTOR, 0.5, "obs is 0.5 (float64); its space says float32 (3,)"),
        (VECTOR, np.zeros(1, np.float32), "obs is float32 (1,); its space says"),
        (VECTOR, np.zeros((1, 3), np.float32), "obs is float32 (1, 3); its space says"),
        (VECTOR, np.zeros(3, complex), "obs is complex128 (3,); its space says"),
        (VECTOR, {"x": 1}, "obs is a dict; its space says float32 (3,)"),
        (VECTOR, "abc", "obs is a str; its space says float32 (3,)"),
        (VECTOR, [1, [2], 3], "obs is a list that numpy cannot read: "),
        (spaces.Box(0, 1, ()), np.zeros(1), "obs is float64 (1,); its space says"),
        (GRADES, np.zeros(3), "obs is float64 (3,); its space says int64 (3,)"),
        (GRADES, [1.0, 2, 3], "obs is float64 (3,); its space says int64 (3,)"),
        (CHOICE, np.float64(0.5), "obs is 0.5 (float64); Discrete(2) needs an integer"),
        (CHOICE, 1.0, "obs is 1.0 (float64); Discrete(2) needs an integer"),
        (CHOICE, None, "obs is None; Discrete(2) needs an integer"),
        (CHOICE, np.array([1]), "obs is int64 (1,); its space says int64 ()"),
        (CHOICE, [1], "obs is int64 (1,); its space says int64 ()"),
        (CHOICE, 2**70, f"obs is {2**70}, which does not fit int64"),
        (CHOICE, 2**63, f"obs is {2**63}, which does not fit int64"),
        (CHOICE, -(2**9999), "obs is an integer of 10,000 bits, which does not fit"),
        (GRADES, [0, 2**70, 0], f"obs[1] is {2**70}, which does not fit int64"),
        (GRADES, [0, None, 0], "obs is a list; its space says int64 (3,)"),
        (PAIR, None, "obs is None; its space says a dict of ['a', 'b']"),
        (PAIR, {"a": 1}, "obs has keys ['a']; its space says ['a', 'b']"),
        (PAIR, {"a": 1, "c": 2}, "obs has keys ['a', 'c']; its space says ['a', 'b']"),
        (PAIR, {"a": 1, "b": (1,), "c": 2}, "obs has keys ['a', 'b', 'c']; its space"),
        (PAIR, {"a": 1, "b": 0}, "obs['b'] is an int; its space says a tuple of 1"),
        (PAIR, {"a": 1, "b": (0, 1)}, "obs['b'] is a tuple of 2; its space says a t"),
        (PAIR, {"a": 1, "b": (0.5,)}, "obs['b'][0] is 0.5 (float64); Discrete(2)"),
        (PAIR, {"a": 1, "b": None}, "obs['b'] is None; its space says a tuple of 1"),
    ],
)
def test_a_misfit_is_named_with_what_was_expected(
    space: spaces.Space[Any], value: Any, text: str
) -> None:
    with refused(text):
        encode_one(space, value)


def test_signed_arrays_do_not_fit_unsigned_leaves() -> None:
    pixels = spaces.Box(0, 255, (3,), np.uint8)
    with refused("obs is int64 (3,); its space says uint8 (3,)"):
        encode_one(pixels, np.zeros(3, np.int64))


@pytest.mark.parametrize("value", [-1, 256])
def test_python_integers_have_to_fit_their_leaf(value: int) -> None:
    with refused(f"obs is {value}, which does not fit uint8"):
        encode_one(spaces.Box(0, 255, (), np.uint8), value)


def test_a_missing_key_is_not_invented_by_a_defaultdict() -> None:
    with refused("obs has keys ['a', 'c']"):
        encode_one(PAIR, defaultdict(lambda: (0,), a=0, c=0))


def test_the_root_word_is_the_callers() -> None:
    codec = codec_for(PAIR)
    with refused("final_obs['a'] is None"):
        codec.encoder(blank(codec, 1), name="final_obs")(0, 0, {"a": None, "b": (1,)})


def test_structure_is_checked_beside_mailed_leaves_too() -> None:
    space = spaces.Dict({"a": spaces.Text(3), "b": CHOICE})
    with refused("obs has keys ['a']; its space says ['a', 'b']"):
        encode_one(space, {"a": "x"})
    with refused("obs['b'] is 0.5 (float64)"):
        encode_one(space, {"a": "x", "b": 0.5})


# ---------------------------------------------------------------- splitting actions


def test_an_array_of_the_right_shape_is_not_copied() -> None:
    actions = np.zeros((4, 3), np.float32)
    (part,), columns = codec_for(VECTOR).split(actions, 4)
    assert part is actions
    assert columns == []


@pytest.mark.parametrize(
    "batch", [[0, 1, 0], (0, 1, 0), np.array([0, 1, 0], np.int8), [np.int64(0), 1, 0]]
)
def test_discrete_actions_come_as_arrays_and_lists(batch: Any) -> None:
    assert act(codec_for(CHOICE), batch, 3) == [0, 1, 0]


def test_whatever_has_an_array_is_an_array() -> None:
    class Tensor:
        dtype = "tensor.int64"

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([1, 0])

    assert act(codec_for(CHOICE), Tensor(), 2) == [1, 0]


def test_a_tensor_that_refuses_says_why() -> None:
    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            raise TypeError("can't convert cuda:0 tensor")

    with refused("actions is a Tensor that numpy cannot read: can't convert cuda:0"):
        codec_for(CHOICE).split(Tensor(), 2)


def test_integers_that_numpy_would_join_as_floats_stay_integers() -> None:
    mixed = [np.uint64(1), np.int64(-1)]
    assert_same(act(codec_for(CHOICE), mixed, 2), [np.int64(1), np.int64(-1)])
    with pytest.raises(SpaceMismatch, match="another number as int64"):
        codec_for(CHOICE).split([np.uint64(2**64 - 1), np.int64(-1)], 2)


TWO = spaces.Tuple([spaces.Discrete(5), spaces.Discrete(7)])


def test_a_tuple_as_long_as_its_space_is_batched_and_a_list_is_per_slot() -> None:
    codec = codec_for(TWO)
    assert act(codec, ([1, 2], [3, 4]), 2) == [(1, 3), (2, 4)]
    assert act(codec, [(1, 3), (2, 4)], 2) == [(1, 3), (2, 4)]
    assert act(codec, ((1, 2), (3, 4), (0, 6)), 3) == [(1, 2), (3, 4), (0, 6)]


def test_a_list_of_dicts_is_transposed() -> None:
    space = spaces.Dict({"a": CHOICE, "b": spaces.Text(3)})
    (numbers,), (texts,) = codec_for(space).split(
        [{"a": 1, "b": "x"}, {"b": "y", "a": 0}], 2
    )
    assert numbers.tolist() == [1, 0]
    assert texts == ("x", "y")


@pytest.mark.parametrize(
    ("space", "batch", "text"),
    [
        (
            CHOICE,
            np.zeros(7, np.int64),
            "actions has shape (7,); expected (8,): one for each of 8 slots",
        ),
        (CHOICE, [0] * 7, "actions has shape (7,); expected (8,): one"),
        (CHOICE, np.zeros((8, 1), np.int64), "actions has shape (8, 1); expected (8,)"),
        (CHOICE, 0, "actions is 0 (int64); expected (8,): one for each"),
        (CHOICE, None, "actions is None; expected (8,): one for each"),
        (
            CHOICE,
            [0, 1, 0, 0.5, 1, 0, 1, 1],
            "actions[3] is 0.5 (float64); Discrete(2) needs an integer",
        ),
        (CHOICE, [0, -(2**70)] * 4, f"actions[1] is {-(2**70)}, which does not fit"),
        (CHOICE, [0, None] * 4, "actions[1] is None; Discrete(2) needs an integer"),
        (CHOICE, np.zeros(8), "actions[0] is 0.0 (float64); Discrete(2) needs an int"),
        (VECTOR, np.zeros((3,)), "actions has shape (3,); expected (8, 3): one"),
        (VECTOR, np.zeros((8, 2)), "actions has shape (8, 2); expected (8, 3): one"),
        (
            VECTOR,
            [[0, 0, 0]] * 7 + [[0, 0]],
            "actions[7] is int64 (2,); its space says",
        ),
        (GRADES, np.zeros((8, 3)), "actions[0] is float64 (3,); its space says int64"),
        (PAIR, None, "actions is None; expected one for each of 8 slots"),
        (PAIR, {"a": [0] * 8}, "actions has keys ['a']; its space says ['a', 'b']"),
        (
            PAIR,
            {"a": [0] * 8, "b": ([0] * 7,)},
            "actions['b'][0] has shape (7,); expected (8,): one for each",
        ),
        (PAIR, [{"a": 0, "b": (0,)}], "actions has 1 item; expected 8: one for"),
        (
            PAIR,
            [{"a": 0, "b": (0,)}] * 5 + [{"a": 0, "b": (0.5,)}] * 3,
            "actions[5]['b'][0] is 0.5 (float64); Discrete(2) needs an integer",
        ),
        (TWO, [[0] * 8, [0] * 8], "actions has 2 items; expected 8: one"),
        (
            TWO,
            ([0] * 8, [0.5] * 8),
            "actions[1][0] is 0.5 (float64); Discrete(7) needs",
        ),
        (TWO, np.zeros((2, 8)), "actions is a ndarray; expected one for each"),
        (spaces.Text(3), ["a"] * 7, "actions has 7 items; expected 8: one"),
        (spaces.Text(8), "abcdefgh", "actions is a str; expected one for each"),
    ],
)
def test_actions_that_do_not_fit_are_named(
    space: spaces.Space[Any], batch: Any, text: str
) -> None:
    with refused(text):
        codec_for(space).split(batch, 8)


def test_the_one_slot_is_told_so() -> None:
    with refused("actions has shape (2,); expected (1,): one action"):
        codec_for(CHOICE).split([0, 1], 1)


# ---------------------------------------------------------------- custom codecs


@dataclass
class Point:
    x: float
    y: float


class Points(gymnasium.Space[Point]):
    """A custom space that says how its values are stored."""


def points_codec(space: Points) -> StandIn:
    plane = spaces.Tuple([spaces.Box(-9, 9, (), np.float64)] * 2)
    return StandIn(
        plane,
        pack=lambda point: (point.x, point.y),
        unpack=lambda pair: Point(float(pair[0]), float(pair[1])),
    )


@pytest.fixture
def points() -> Iterator[Points]:
    register_codec(Points, points_codec)
    yield Points()
    register_codec(Points, lambda space: MailedCodec())


def test_a_registered_space_has_leaves_of_its_own(points: Points) -> None:
    codec = codec_for(spaces.Dict({"goal": points}))
    assert [leaf.path for leaf in codec.leaves] == [("goal", 0), ("goal", 1)]
    assert codec.mailed == 0
    assert round_trip(codec, [{"goal": Point(1, 2)}]) == [{"goal": Point(1, 2)}]


def test_a_registered_space_is_batched_as_gymnasium_does(points: Points) -> None:
    codec = codec_for(points)
    values = [Point(1, 2), Point(3, 4)]
    leaf_batches, columns = codec.split(values, 2)
    assert [part.tolist() for part in leaf_batches] == [[1, 3], [2, 4]]
    assert codec.assemble(leaf_batches, columns) == gymnasium_batch(points, values)


def test_a_misfit_inside_a_registered_space_is_named(points: Points) -> None:
    with refused("actions[1][0] is None; its space says float64 ()"):
        codec_for(points).split([Point(1, 2), Point(None, 0)], 2)  # type: ignore[arg-type]
