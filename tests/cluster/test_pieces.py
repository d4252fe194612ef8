"""Answers arrive as they were, in any number of pieces."""

import numpy as np
import pytest

from corral.cluster import shipping
from corral.cluster.pieces import MOST_PIECES, PIECE, count_for, cut, joined, size_of
from corral.cluster.shipping import importable_with, opened, parcel

VALUES = {
    "nothing": None,
    "small": {"reward": np.arange(3.0), "named": "x"},
    "odd": [np.arange(n, dtype=np.uint8) for n in (1, 15, 16, 17, 0)],
    "large": {"obs": np.arange(300_000.0), "done": np.ones(70_001, bool)},
}


@pytest.mark.parametrize("name", VALUES)
def test_what_was_cut_is_joined_again(name):
    packed = parcel(VALUES[name], importable_with(None))
    for count in {1, 2, max(1, -(-size_of(packed) // PIECE))}:
        pieces = cut(packed, count)
        found = opened(joined([pieces] if count == 1 else pieces))
        np.testing.assert_equal(found, VALUES[name])


def test_pieces_that_are_just_full():
    for size in range(2 * PIECE - 400, 2 * PIECE + 32, 8):
        value = np.arange(size // 8)
        pieces = cut(parcel(value, importable_with(None)), 2)
        assert len(pieces) == 2
        np.testing.assert_equal(opened(joined(pieces)), value)


def test_pieces_are_below_rays_limit_and_arrays_aligned():
    packed = parcel(VALUES["large"], importable_with(None))
    count = -(-size_of(packed) // PIECE)
    pieces = cut(packed, count)
    assert len(pieces) == count and max(map(len, pieces)) <= PIECE
    whole = opened(joined(pieces))
    assert all(array.flags.aligned for array in whole.values())


def test_a_large_answer_stays_whole():
    assert count_for(PIECE * MOST_PIECES + 1) == count_for(0) == 1
    assert count_for(PIECE + 1) == 2
    packed = parcel(VALUES["large"], importable_with(None))
    assert cut(packed, 2)[0] is packed


def test_corral_itself_never_travels_by_value_even_if_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(shipping, "_distributions", dict)
    found = importable_with(None)
    assert found("corral.cluster.site")
    assert not found(__name__)
