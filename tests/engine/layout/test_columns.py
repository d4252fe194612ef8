"""Infos come out of the block as Gymnasium would have built them."""

from __future__ import annotations

import enum
import pickle
import random
import tracemalloc
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from corral.engine.layout.columns import (
    ARENA_BYTES_PER_SLOT,
    INFO_ROWS,
    MAX_COLUMNS,
    MAX_COLUMNS_PER_PATH,
    Columns,
)
from corral.engine.layout.infos import Infos
from corral.engine.layout.readout import Column

Info = dict[Any, Any]


class Colour(enum.IntEnum):
    RED = 1


def memory(slots: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    # Filled with junk: what a reader sees must have been written.
    arena = np.full(INFO_ROWS * slots * ARENA_BYTES_PER_SLOT, 0xA5, np.uint8)
    return arena, np.zeros((INFO_ROWS, slots, MAX_COLUMNS), np.uint8)


class Pair:
    """A parent and a worker over one block, as executors join them."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.arena, self.presence = memory(slots)
        self.parent = Columns(self.arena, self.presence)
        self.worker = Columns(self.arena, self.presence)
        self.row = 1

    def step(self, infos: list[Info]) -> Infos:
        self.row = 1 - self.row
        remainders = {}
        for slot, info in enumerate(infos):
            remainder = self.worker.write(self.row, slot, info)
            if remainder is not None:
                remainders[slot] = remainder
        result = Infos(self.parent.read(self.row), remainders)
        for remainder in remainders.values():
            new = self.parent.define(remainder)
            self.worker.adopt(pickle.loads(pickle.dumps(new)))
        return result


def gymnasium_vector(infos: list[Info]) -> Info:
    envs: Any = VectorEnv()
    envs.num_envs = len(infos)
    vector: Info = {}
    for position, info in enumerate(infos):
        vector = envs._add_info(vector, info, position)
    return vector


def same(one: Any, other: Any) -> bool:
    """Equal in type, dtype, shape and value, NaN being equal to NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.dtype == object:
            return all(map(same, one.ravel().tolist(), other.ravel().tolist()))
        if one.dtype == np.longdouble:  # six of its bytes mean nothing
            return np.array_equal(one, other, equal_nan=True)
        return bool(one.tobytes() == other.tobytes())
    return bool(one == other) or bool(one != one and other != other)


NUMPY_SCALARS = [
    np.bool_(True),
    np.bool_(False),
    np.float16(1.5),
    np.float32(0.1),
    np.float64(0.1),
    np.float64("nan"),
    np.int8(-3),
    np.int32(7),
    np.int64(-9),
    np.uint8(200),
    np.uint64(2**64 - 1),
    np.complex64(1 + 2j),
    np.longdouble(1.5),
    np.longlong(4),
    np.timedelta64(3, "s"),
    np.datetime64("2024-01-01"),
]
ARRAYS = [
    np.arange(3.0),
    np.arange(3, dtype=np.float32),
    np.arange(6).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array([True, False]),
    np.array(5.0),
    np.array(5, dtype=">i4"),
    np.arange(3, dtype=">f8"),
    np.zeros((0, 2)),
    np.array(["a", "bc"]),
    np.array([None, "x"], dtype=object),
    np.arange(3, dtype=np.longdouble),
    np.zeros(2, dtype=[("a", "f4")]),
    np.zeros(2, dtype="M8[s]"),
]
FLOATS = [0.0, -0.0, 0.1, 1e300, 5e-324, np.inf, -np.inf, np.nan]
INTEGERS = [0, 1, -1, 255, 2**31, -(2**63), 2**63 - 1, 2**63, 2**64 - 1, -(2**70)]
OTHERS = [None, "text", [1, 2], (1, 2), Colour.RED, 1j, b"b", object]
LEAVES: list[list[Any]] = [
    *(FLOATS, INTEGERS, [True, False], NUMPY_SCALARS, ARRAYS, OTHERS),
]
KEYS = ["a", "b", "c", "_a", "__a", "final_obs", "final_info", 5, "5"]
Draw = Callable[[random.Random], Info]


def wild_info(rng: random.Random, keys: int = 5, depth: int = 3) -> Info:
    """Any key with any value."""
    info: Info = {}
    for key in rng.sample(KEYS, rng.randint(0, keys)):
        if depth and rng.random() < 0.3:
            below = wild_info(rng, keys=3, depth=depth - 1)
            info[key] = OrderedDict(below) if rng.random() < 0.3 else below
        elif rng.random() < 0.2:
            info[key] = rng.choice([rng.gauss(0, 1e3), rng.randint(-(2**63), 2**63)])
        else:
            info[key] = rng.choice(rng.choice(LEAVES))
    return info


def tame_info(rng: random.Random) -> Info:
    """Each key has its type, as in real envs; keys come and go."""
    full: Info = {
        "speed": rng.choice(FLOATS),
        "lives": rng.randint(-5, 5),
        "won": rng.random() < 0.5,
        "flag": np.bool_(rng.random() < 0.5),
        "position": np.array(rng.choices(FLOATS, k=2)),
        "name": rng.choice("xy"),
        "episode": {"r": rng.choice(FLOATS), "l": 3, "more": {"t": np.float32(0.5)}},
        "none": None,
        "final_obs": np.arange(2),
        "final_info": {"speed": 1.0, "episode": {"r": 0.5}},
    }
    info = {key: full[key] for key in full if rng.random() < 0.5}
    if "episode" in info and rng.random() < 0.5:
        info["episode"] = {"l": 4, "note": "lost"}
    return info


NO_ANSWER = (
    TypeError,
    ValueError,
    OverflowError,
    AttributeError,
    IndexError,
    RuntimeError,
)
"""What Gymnasium raises where a value does not fit the array of those before it."""


def check(sequence: list[list[Info]], told: str = "") -> None:
    pair = Pair(len(sequence[0]))
    for infos in sequence:
        result = pair.step(infos)
        for position, info in enumerate(infos):
            assert same(result.of(position), info), told
            assert same(result.to_list(len(infos))[position], info), told
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            vector = result.to_vector(len(infos))
            try:
                expected = gymnasium_vector(infos)
            except NO_ANSWER:
                continue  # where Gymnasium has no answer, ours only has to be one
        assert same(vector, expected), told
        assert bool(result) == any(infos), told


@pytest.mark.parametrize(("draw", "count"), [(wild_info, 400), (tame_info, 200)])
def test_any_infos_equal_gymnasium(draw: Draw, count: int) -> None:
    for seed in range(count):
        rng = random.Random(seed)
        slots, steps = rng.randint(1, 4), rng.randint(1, 6)
        check([[draw(rng) for _ in range(slots)] for _ in range(steps)], f"seed {seed}")


def test_an_entry_in_the_place_of_a_mask_can_hold_an_array() -> None:
    vector = np.arange(3.0)
    check([[{"a": 0.0}, {"_a": vector, "a": vector}]])


def test_an_entry_of_short_strings_may_become_a_date() -> None:
    check([[{"a": np.array(["a", "bc"])}, {"a": np.datetime64("2024-01-01")}]])


def test_numeric_entries_leave_the_remainder_after_one_step() -> None:
    pair = Pair(2)
    info = {"speed": 1.0, "episode": {"r": 2.0, "l": 3}, "x": np.zeros(3), "s": "text"}
    pair.step([info, {}])
    assert pair.worker.write(0, 1, info) == {"s": "text"}
    assert pair.worker.write(0, 1, {"episode": {"r": 2.0}}) is None


def test_an_absent_key_is_absent_in_the_same_row() -> None:
    pair = Pair(2)
    for _ in range(3):
        pair.step([{"a": 1.0, "b": 2}, {"a": 3.0}])
    pair.step([{}, {"a": 3.0}])
    result = pair.step([{"b": 2}, {}])
    assert result.of(0) == {"b": 2} and result.of(1) == {}
    assert set(result.to_vector(2)) == {"b", "_b"}
    assert not pair.step([{}, {}])
    assert not pair.presence[pair.row].any()


def test_presence_left_by_a_dead_worker_is_cleared() -> None:
    pair = Pair(1)
    for _ in range(3):
        pair.step([{"a": 1.0}])
    pair.worker = Columns(pair.arena, pair.presence)
    pair.worker.adopt(pair.parent.defined)
    assert not pair.step([{}])
    assert pair.step([{"a": 2.0}]).of(0) == {"a": 2.0}


def test_the_other_row_stays_intact() -> None:
    pair = Pair(1)
    for value in (1.0, 2.0, 3.0):
        pair.step([{"a": value}])
    before = pair.parent.read(1 - pair.row)
    assert before[0][1].tolist() == [2.0]
    assert pair.parent.read(pair.row)[0][1].tolist() == [3.0]


def test_what_was_read_is_a_copy() -> None:
    pair = Pair(1)
    pair.step([{"a": 1.0}])
    results = [pair.step([{"a": value}]) for value in (2.0, 3.0, 4.0, 5.0)]
    assert [result.of(0)["a"] for result in results] == [2.0, 3.0, 4.0, 5.0]
    assert [bool(result.to_vector(1)["_a"][0]) for result in results] == [True] * 4


def test_a_gathered_batch_has_its_own_order_and_rows() -> None:
    pair = Pair(3)
    for step in range(3):
        pair.step([{"a": 10.0 * step + slot} if slot else {} for slot in range(3)])
    read = pair.parent.read(np.array([0, 1, 0]), np.array([2, 1, 0]))
    ((column, values, mask),) = read
    assert column.path == ("a",)
    assert values.tolist() == [22.0, 11.0, 0.0] and mask.tolist() == [True, True, False]
    assert Infos(read, {}).to_vector(3)["a"].tolist() == [22.0, 11.0, 0.0]


def test_a_gathered_batch_takes_only_what_its_slots_have() -> None:
    pair, image = Pair(64), np.zeros(400)
    told: Info = {"speed": 1.5, "image": image, "ok": np.True_}
    pair.step([told] * 64)
    pair.step([told] + [{"ok": np.True_}] * 63)
    slots = np.arange(1, 33)
    pair.parent.read(pair.row, slots)  # what numpy makes but once is made
    tracemalloc.start()
    try:
        read = pair.parent.read(pair.row, slots)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [(column.path, mask.all()) for column, _, mask in read] == [(("ok",), True)]
    assert peak < len(slots) * image.nbytes


def test_an_int_beyond_64_bits_goes_to_the_remainder() -> None:
    pair = Pair(1)
    for value in (1, 2**70, 2, -(2**63)):
        assert pair.step([{"a": value}]).of(0) == {"a": value}
    assert len(pair.parent.defined) == 1


def test_overflowing_the_arena_falls_back_to_the_remainder() -> None:
    pair = Pair(2)
    infos = [
        {"large": np.full(400, slot, float), "larger": np.full(500, slot), "small": 1}
        for slot in range(2)
    ]
    pair.step(infos)
    assert {column.path for column in pair.parent.defined} == {("large",), ("small",)}
    result = pair.step(infos)
    assert same(result.to_vector(2), gymnasium_vector(infos))
    assert pair.worker.write(0, 0, infos[0]) == {"larger": infos[0]["larger"]}


def test_columns_and_paths_have_limits() -> None:
    pair = Pair(1)
    info = {f"key{number}": float(number) for number in range(MAX_COLUMNS + 10)}
    for _ in range(3):
        assert same(pair.step([info]).of(0), info)
    assert len(pair.parent.defined) == len(info) - 10
    ragged = Pair(1)
    for length in range(10):
        ragged.step([{"ragged": np.zeros(length)}])
    assert len(ragged.parent.defined) == MAX_COLUMNS_PER_PATH


def test_columns_lie_aligned_and_apart() -> None:
    pair = Pair(3)
    pair.step([{"a": True, "b": np.zeros(5, np.int8), "c": 1.0}] * 3)
    ends = [0]
    for column in pair.parent.defined:
        assert column.offset % 16 == 0 and column.offset >= ends[-1]
        size = int(np.prod(column.shape)) * column.dtype.itemsize
        ends.append(column.offset + 2 * 3 * size)


def test_a_column_survives_its_journey() -> None:
    column = Column(3, ("a", "b"), np.float32, np.dtype(np.float32), (), 64)
    assert pickle.loads(pickle.dumps(column)) == column


def test_a_value_gymnasium_cannot_cast_makes_an_array_of_objects() -> None:
    result = Pair(3).step([{"a": 1.5}, {"a": "text"}, {"a": {"b": 1}}])
    vector = result.to_vector(3)
    assert vector["a"].tolist() == [1.5, "text", {"b": 1}]
    assert vector["_a"].all()


def test_a_changed_type_is_cast_as_gymnasium_casts() -> None:
    pair = Pair(2)
    infos: list[Info] = [{"a": 1}, {"a": 2.75}]
    for _ in range(3):
        assert same(pair.step(infos).to_vector(2), gymnasium_vector(infos))
    assert len(pair.parent.defined) == 2


@pytest.mark.parametrize("key", ["final_obs", "final_info"])
def test_final_entries_never_become_columns(key: str) -> None:
    pair = Pair(1)
    assert pair.parent.define({key: 1.0, "in": {key: {"a": 1.0}}}) == []
