"""Which values may be written to a leaf, and how an error names one that may not.

Same-kind casts pass silently, as do NaN and values out of bounds. A wrong shape, a
wrong structure or a cast of another kind (float to int) raises SpaceMismatch. Nothing
is ever broadcast.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from corral.errors import SpaceMismatch
from corral.layout.contract import Array


@lru_cache
def castable(dtype: np.dtype[Any]) -> frozenset[np.dtype[Any]]:
    """The ordinary dtypes that may be written to a leaf: same kind or a safer one."""
    ordinary = [np.dtype(code) for code in "?bhilqpBHILQPefdg"]
    return frozenset(d for d in ordinary if np.can_cast(d, dtype, "same_kind"))


def casts(value: Any, array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether `array`, which is numpy's reading of `value`, may be written as dtype."""
    if hasattr(value, "dtype"):
        return np.can_cast(array.dtype, dtype, "same_kind")
    # Python's own numbers have no width and no sign bit of theirs: they have to fit.
    if array.size == 0:
        return True
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min <= int(array.min()) and int(array.max()) <= limits.max
    return np.can_cast(array.dtype, dtype, "same_kind")


def is_what(value: Any, array: Array | None = None) -> str:
    """How an error names a value: "is uint8 (84, 84)", "is 0.5 (float64)"."""
    if value is None:
        return "is None"
    if array is None or array.dtype.kind not in "biufc":
        kind = type(value).__name__
        return f"is an {kind}" if kind[0] in "aeiouAEIOU" else f"is a {kind}"
    if array.ndim == 0:
        return f"is {array} ({array.dtype})"
    return f"is {array.dtype} {array.shape}"


def unreadable(name: str, value: Any, error: Exception) -> SpaceMismatch:
    """What is raised for a value that numpy could not make an array of."""
    return SpaceMismatch(f"{name} {is_what(value)} that numpy cannot read: {error}")
