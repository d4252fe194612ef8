"""Seconds as a reader wants them."""

from __future__ import annotations


def duration_text(seconds: float) -> str:
    """Three digits and a unit.

    >>> duration_text(0.00512)
    '5.12 ms'
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
