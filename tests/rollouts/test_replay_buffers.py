"""Replay buffers against lists of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.errors import OptionError
from corral.rollouts.replay import Replay, SequenceReplay

COLUMNS = {"obs": 2, "reward": 1}


def rows(first: int, count: int):
    """Rows that can be told apart: their numbers, and their negatives."""
    numbers = np.arange(first, first + count, dtype=np.float64)
    return {"obs": np.stack([numbers, -numbers], 1), "reward": numbers}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(0, 30), max_size=8), st.integers(0, 9))
def test_a_ring_holds_the_latest_rows(capacity, counts, seed):
    replay, added = Replay(capacity, COLUMNS), 0
    for count in counts:
        replay.add(rows(added, count))
        added += count
    assert len(replay) == min(added, capacity) and replay.total == added
    if not added:
        return
    batch = replay.sample(200, np.random.default_rng(seed))
    assert batch["obs"].shape == (200, 2) and batch["reward"].shape == (200, 1)
    assert set(batch["reward"].ravel()) <= set(range(max(0, added - capacity), added))
    assert np.array_equal(batch["obs"][:, 0], batch["reward"][:, 0])
    assert np.array_equal(batch["obs"][:, 1], -batch["reward"][:, 0])


def windows_of(episodes: list[list[int]], window: int | None):
    """Every window that may be sampled, by the slow and obvious way."""
    found = []
    for episode in episodes:
        if window is None or len(episode) <= window:
            found.append(tuple(episode))
        else:
            last = len(episode) - window
            found += [tuple(episode[at : at + window]) for at in range(last + 1)]
    return found


@settings(max_examples=80, deadline=None)
@given(
    st.integers(6, 40),
    st.lists(st.integers(1, 6), min_size=1, max_size=20),
    st.none() | st.integers(1, 8),
    st.integers(0, 9),
)
def test_windows_lie_within_one_stored_episode(capacity, lengths, window, seed):
    replay = SequenceReplay(capacity, COLUMNS, window)
    episodes: list[list[int]] = []
    added = 0
    for length in lengths:
        replay.add(rows(added, length))
        episodes.append(list(range(added, added + length)))
        added += length
    kept = [one for one in episodes if one[0] >= added - capacity]
    assert replay.episodes == len(kept)
    allowed = windows_of(kept, window)
    batch = replay.sample(400, np.random.default_rng(seed))
    length = window or max(map(len, kept))
    assert len(batch["mask"]) <= length and batch["mask"].shape[1:] == (400, 1)
    drawn = []
    for column in range(400):
        mask = batch["mask"][:, column, 0] == 1
        assert not np.diff(mask.astype(int)).clip(0).any(), "padding comes last"
        drawn.append(tuple(batch["reward"][mask, column, 0].astype(int).tolist()))
    assert set(drawn) <= set(allowed)
    if len(allowed) <= 12:
        assert set(drawn) == set(allowed)


def test_all_starts_are_equally_likely():
    replay = SequenceReplay(100, COLUMNS, window=3)
    for first, length in ((0, 2), (2, 5), (7, 12)):
        replay.add(rows(first, length))
    batch = replay.sample(28_000, np.random.default_rng(0))
    starts, counts = np.unique(batch["reward"][0, :, 0], return_counts=True)
    assert starts.tolist() == [0, 2, 3, 4, *range(7, 17)]
    assert np.abs(counts - 2000).max() < 250


@pytest.mark.parametrize("window", [None, 3])
def test_rows_and_state_restore_a_replay(window):
    one = SequenceReplay(20, COLUMNS, window)
    for first in range(0, 35, 5):
        one.add(rows(first, 5))
    other = SequenceReplay(20, COLUMNS, window)
    other.load_state_dict(one.state_dict())
    other.restore(15, one.rows(15, 25))
    other.restore(25, one.rows(25, 35))
    drawn = [each.sample(50, np.random.default_rng(1)) for each in (one, other)]
    assert all(np.array_equal(drawn[0][name], drawn[1][name]) for name in drawn[0])


def test_errors_name_the_numbers():
    with pytest.raises(OptionError, match=r"takes 11\.2 GiB, and the limit is 1 GiB"):
        Replay(10**9, COLUMNS, max_gib=1)
    with pytest.raises(OptionError, match=r"21 steps does not fit .* 20 transitions"):
        SequenceReplay(20, COLUMNS).add(rows(0, 21))
    with pytest.raises(OptionError, match="is empty"):
        Replay(3, COLUMNS).sample(1, np.random.default_rng(0))
    with pytest.raises(
        OptionError, match=r"columns \['obs', 'reward'\], got \['obs'\]"
    ):
        Replay(3, COLUMNS).add({"obs": np.zeros((1, 2))})
