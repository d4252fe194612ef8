"""Which entries of an info can be columns, and what makes two of them the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

_NEVER = frozenset({"final_obs", "final_info"})
_PYTHON_TYPES = (float, int, bool)
NUMPY_TYPES: frozenset[type] = frozenset(
    {np.bool_, np.float16, np.float32, np.float64, np.complex64, np.complex128}
    | {np.int8, np.int16, np.int32, np.int64}
    | {np.uint8, np.uint16, np.uint32, np.uint64}
)

Identity = tuple[tuple[str, ...], type, str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Column:
    """One entry's place in the arena, and what the entry is."""

    index: int
    """Its place in the presence bytes."""
    path: tuple[str, ...]
    type: type
    """The exact type of its values: Python's own, a scalar of numpy, or ndarray."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int
    """In bytes, from the beginning of the arena."""

    @property
    def identity(self) -> Identity:
        """What makes two entries the same: path, type, dtype and shape."""
        return self.path, self.type, self.dtype.str, self.shape

    @property
    def plain(self) -> bool:
        """Whether its values are Python's own numbers."""
        return self.type in _PYTHON_TYPES


def eligible(info: dict[Any, Any]) -> set[str]:
    """The keys of a dict that may have columns, or dicts with columns.

    Gymnasium keeps the mask of "key" under "_key". Where an info uses both names the
    order of its entries matters, and only a remainder keeps that.
    """
    if any(f"_{key}" in info for key in info):
        return set()
    names = {key for key in info if type(key) is str and key not in _NEVER}
    return {name for name in names if not name.startswith("_")}


def candidates(
    path: tuple[str, ...], info: dict[Any, Any]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The eligible leaves of an info, with their paths."""
    names = eligible(info)
    for key, value in info.items():
        if key not in names:
            continue
        if type(value) is dict:
            yield from candidates((*path, key), value)
        else:
            yield (*path, key), value


def described(value: Any) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Dtype and shape of what can be a column."""
    kind = type(value)
    if kind is int and not -(2**63) <= value < 2**63:
        return None
    if kind in _PYTHON_TYPES or kind in NUMPY_TYPES:
        return np.dtype(kind), ()
    # Long doubles change their meaning from platform to platform, even in a pickle.
    numeric = kind is np.ndarray and value.dtype.kind in "biufc"
    if numeric and value.dtype.char not in "gG":
        return np.dtype(value.dtype.str), value.shape
    return None
