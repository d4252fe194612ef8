"""Minibatches: every valid row once, sequences that cross no start."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.learners.minibatches import even_parts, packed, shuffled_slots


@pytest.mark.parametrize(
    ("count", "size", "lengths"),
    [(8, 4, [4, 4]), (9, 4, [3, 3, 3]), (3, 4, [3]), (1025, 256, [205] * 5)],
)
def test_parts_are_even(count, size, lengths):
    parts = even_parts(count, size)
    assert [part.stop - part.start for part in parts] == lengths
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 5))
def test_packed_rows_are_the_sequences_one_after_the_other(seed, rows, slots):
    generator = np.random.default_rng(seed)
    started = generator.random((rows, slots)) < 0.3
    valid = generator.random((rows, slots)) < 0.8
    chosen = generator.permutation(slots)[: generator.integers(1, slots + 1)]
    packing = packed(started, valid, chosen)
    expected = sequences(started, valid, chosen)
    lengths = [len(one) for one, _, _ in expected]
    assert sorted(unpacked(packing)) == sorted(expected)
    assert packing.batch_sizes.sum() == sum(lengths)
    assert (np.diff(packing.batch_sizes) <= 0).all()


def sequences(started, valid, slots):
    """(row numbers, slot, whether fresh) of each sequence, the plain way."""
    found = []
    for slot in slots.tolist():
        current, fresh = [], bool(started[0, slot])
        for row in range(len(started)):
            if row and started[row, slot]:
                found.append((tuple(current), slot, fresh))
                current, fresh = [], True
            if valid[row, slot]:
                current.append(row * started.shape[1] + slot)
        found.append((tuple(current), slot, fresh))
    return [one for one in found if one[0]]


def unpacked(packing):
    rows = [[] for _ in packing.slots]
    begin = 0
    for size in packing.batch_sizes:
        for place in range(size):
            rows[place].append(int(packing.index[begin + place]))
        begin += size
    return [
        (tuple(one), int(slot), bool(fresh))
        for one, slot, fresh in zip(rows, packing.slots, packing.fresh, strict=True)
    ]


def test_every_slot_has_its_turn():
    started = np.zeros((4, 6), np.bool_)
    generator = torch.Generator().manual_seed(0)
    packings = list(shuffled_slots(started, ~started, 8, generator))
    assert len(packings) == 3
    rows = np.concatenate([packing.index for packing in packings])
    assert sorted(rows.tolist()) == list(range(24))
