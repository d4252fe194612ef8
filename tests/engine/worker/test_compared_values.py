"""What envs returned is kept as it was, and compared to the last bit."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from corral.engine.worker.compared_values import MAX_LISTED, difference, differing, kept

LONG = np.arange(MAX_LISTED + 1)


def values():
    """One of each kind, made anew."""
    return {
        "short": np.array([0.5, np.nan], np.float32),
        "long": LONG.copy(),
        "view": np.zeros((2, 2))[:, 1],
        "scalar": np.float32(0.1),
        "big": 2**100,
        "objects": np.array([{}, None], object),
        "ragged": [[1], (2, 3)],
        ("a", "pair"): b"bytes",
        "function": lambda: None,
    }


def test_what_is_kept_equals_itself_here_and_in_another_process():
    here = kept(values())
    assert difference("info", here, kept(values())) == ""
    there = pickle.loads(pickle.dumps(here))
    assert difference("info", here, there) == ""


def test_what_is_kept_is_not_changed_by_later_steps():
    given = values()
    before = kept(given)
    given["short"][0], given["long"][0], given["ragged"][0][0] = 9, 9, 9
    places = [one.place for one in differing("info", before, kept(given))]
    assert places == ["info['short'][0]", "info['long']", "info['ragged'][0][0]"]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (np.zeros(2), np.array([0.0, -0.0]), "obs[1] is 0 and -0"),
        (np.zeros(1), np.zeros(1, np.float32), "obs is float64 (1,) and float32 (1,)"),
        (np.zeros(1), None, "obs is array([0.]) and None"),
        (0.1, np.nextafter(0.1, 1), "obs is 0.1 and 0.10000000000000002"),
        ({"a": 1}, {"b": 1}, "obs has keys ['a'] and ['b']"),
        ([1, 2], [1], "obs has length 2 and 1"),
        ([[1], 2], [[1, 2], 2], "obs[0] has length 1 and 2"),
        (2**100, 2**100 + 1, f"obs is {2**100} and {2**100 + 1}"),
    ],
)
def test_the_first_difference_is_told_in_words(one, other, said):
    assert difference("obs", one, other) == said
    assert difference("obs", one, one) == ""


def test_of_a_digest_only_the_place_is_told():
    (apart,) = differing("obs", kept(LONG), kept(LONG[::-1]))
    assert apart == ("obs", "differs", "", "")
