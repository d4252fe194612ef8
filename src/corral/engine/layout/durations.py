"""Durations counted by length: four buckets to the doubling, from 64 ns to minutes.

A count costs one store, and percentiles are right to a tenth, which is enough to find
a slow slot. The C recorder counts by the same rule.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BUCKETS = 128
_PER_DOUBLING = 4
# Durations below 2**6 ns are all in bucket 0.
_FIRST_EXPONENT = 6


def bucket_of(seconds: float) -> int:
    """The bucket of a duration."""
    nanoseconds = max(0, int(seconds * 1e9))
    exponent = nanoseconds.bit_length() - 1
    if exponent < _FIRST_EXPONENT:
        return 0
    part = nanoseconds >> exponent - 2 & 3
    return min(BUCKETS - 1, _PER_DOUBLING * (exponent - _FIRST_EXPONENT) + part)


_DOUBLING, _PART = np.divmod(np.arange(BUCKETS + 1), _PER_DOUBLING)
# The seconds at which each bucket begins, and the last one's end.
BUCKET_BOUNDS: NDArray[np.float64] = (
    2.0 ** (_DOUBLING + _FIRST_EXPONENT) * (1 + _PART / _PER_DOUBLING) * 1e-9
)


def percentile(counts: NDArray[np.integer], fraction: float) -> NDArray[np.float64]:
    """The duration that `fraction` of them do not exceed; nan where there are none.

    Args:
        counts: [..., BUCKETS].
        fraction: 0.5 for the median.
    """
    running = counts.cumsum(axis=-1)
    wanted = np.maximum(1, np.ceil(fraction * running[..., -1:]))
    bucket = (running >= wanted).argmax(axis=-1)[..., None]
    inside = np.maximum(1, np.take_along_axis(counts, bucket, -1))
    after = np.take_along_axis(running, bucket, -1) - wanted
    # Those of one bucket are taken to lie evenly in it.
    share = 1 - (after + 0.5) / inside
    low, high = BUCKET_BOUNDS[bucket], BUCKET_BOUNDS[bucket + 1]
    found = (low + share * (high - low))[..., 0]
    return np.where(running[..., -1] > 0, found, np.nan)


def duration_text(seconds: float) -> str:
    """Three digits with a unit: "1.25 ms"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
