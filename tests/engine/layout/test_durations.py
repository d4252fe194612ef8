"""Durations are counted by length, and told again to about a tenth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.engine.layout.durations import BUCKET_BOUNDS, BUCKETS, bucket_of, percentile


@given(st.floats(64e-9, 200.0))
def test_a_duration_lies_within_its_bucket(seconds):
    bucket = bucket_of(seconds)
    assert BUCKET_BOUNDS[bucket] * (1 - 1e-9) <= seconds + 1e-9
    assert seconds < BUCKET_BOUNDS[bucket + 1] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(-1.0, 0), (0.0, 0), (1e-9, 0), (1e6, BUCKETS - 1)]
)
def test_what_is_too_short_or_too_long_has_a_bucket_too(seconds, bucket):
    assert bucket_of(seconds) == bucket


@given(st.lists(st.floats(1e-7, 100.0), min_size=1, max_size=200))
def test_percentiles_are_near_those_of_the_sorted_list(durations):
    counts = np.zeros(BUCKETS, np.int64)
    for duration in durations:
        counts[bucket_of(duration)] += 1
    ordered = np.sort(durations)
    for fraction in (0.5, 0.9, 0.99):
        exact = ordered[max(1, int(np.ceil(fraction * len(ordered)))) - 1]
        assert percentile(counts, fraction) == pytest.approx(exact, rel=0.25)


def test_no_durations_have_no_percentile():
    counts = np.zeros((2, BUCKETS), np.int64)
    counts[1, bucket_of(1e-3)] = 5
    median = percentile(counts, 0.5)
    assert np.isnan(median[0])
    assert median[1] == pytest.approx(1e-3, rel=0.25)
