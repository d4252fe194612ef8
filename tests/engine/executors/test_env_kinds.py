"""Factories that differ in numbers alone are one kind: two of its envs are tried."""

import functools

from corral.engine.executors.process_sharing import slots_to_probe
from tests.stateful_envs import LevelUp, Plain


def thunk(kind, rank, options=None):
    def make():
        return kind() if rank >= 0 and options is None else None

    return make


def test_one_factory_is_one_kind():
    assert slots_to_probe([Plain] * 5) == [0, 1]


def test_closures_that_differ_in_numbers_are_one_kind():
    assert slots_to_probe([thunk(Plain, rank) for rank in range(8)]) == [0, 1]
    assert slots_to_probe([functools.partial(Plain, seed=i) for i in range(4)]) == [
        0,
        1,
    ]


def test_what_else_they_are_given_sets_them_apart():
    mixed = [thunk(Plain, 0), thunk(LevelUp, 1), thunk(Plain, 2), thunk(LevelUp, 3)]
    assert slots_to_probe(mixed) == [0, 2, 1, 3]
    assert slots_to_probe([functools.partial(Plain, name=n) for n in ("a", "b")]) == [
        0,
        1,
    ]
    given = [thunk(Plain, 0, {"level": "easy"}), thunk(Plain, 0, {"level": "hard"})]
    assert slots_to_probe([*given, given[0]]) == [0, 2, 1]


def test_too_many_kinds_are_not_tried():
    assert slots_to_probe([functools.partial(Plain, name=n) for n in "abcd"]) == []
