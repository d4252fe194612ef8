"""The readout takes infos out of the block: columns of one row, and dicts made of them.

It runs between the last env's step and a caller that wants 64 dicts. Every worker waits
meanwhile, and the simulators have evicted our code from the caches: the infos of 64
Ants take the Python twins 240 µs then, and the C twins 120 µs.

Two twins share these names and tests; `KIND` says which one this process uses.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

PYTHON_NUMBERS = (float, int, bool)
Identity = tuple[tuple[str, ...], type, str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Column:
    """One entry's place in the arena, and what the entry is.

    Attributes:
        index: Its place in the presence bytes.
        type: The exact type of its values: Python's own, a scalar of numpy, or ndarray.
        offset: In bytes, from the beginning of the arena.
    """

    index: int
    path: tuple[str, ...]
    type: type
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def identity(self) -> Identity:
        """What makes two entries the same: path, type, dtype and shape."""
        return self.path, self.type, self.dtype.str, self.shape

    @property
    def plain(self) -> bool:
        """Whether its values are Python's own numbers."""
        return self.type in PYTHON_NUMBERS


Mask = NDArray[np.bool_]
ColumnRead = tuple[Column, NDArray[Any], Mask]


def python_copy_out(
    columns: list[Column], arrays: list[NDArray[Any]], presence: NDArray[np.uint8]
) -> list[ColumnRead]:
    """Copy the columns of one row that any slot has.

    Args:
        columns: all there are, in their order.
        arrays: one per column, `(slots, *shape)`.
        presence: `(slots, at least as many as there are columns)`.

    Returns:
        For each its values, zero where a slot has no such entry, and the mask of where
        it has one.
    """
    masks = np.array(presence[:, : len(columns)].T, order="C").view(np.bool_)
    totals = np.count_nonzero(masks, axis=1).tolist()
    result: list[ColumnRead] = []
    for column, array, mask, total in zip(columns, arrays, masks, totals, strict=True):
        if total:
            values = array.copy()
            if total < len(mask):
                values[~mask] = 0
            result.append((column, values, mask))
    return result


def python_to_dicts(
    keys: tuple[str, ...],
    sources: tuple[list[Any] | NDArray[Any], ...],
    plain: bytes,
    count: int,
) -> list[dict[Any, Any]]:
    """One dict per position, out of one list or array per key.

    Args:
        keys: of each dict, in its order.
        sources: what the values are taken from, `count` in each.
        plain: per key, whether an array's values are to be Python's own, not numpy's.
        count: how many dicts.
    """
    if not keys:
        return [{} for _ in range(count)]
    each = [
        one.tolist() if python and isinstance(one, np.ndarray) else list(one)
        for one, python in zip(sources, plain, strict=True)
    ]
    # By map, in two thirds of the time that a comprehension takes. No length is in
    # doubt, and `strict` would cost as much again.
    rows = zip(*each)  # noqa: B905
    return list(map(dict, map(zip, repeat(keys), rows)))


try:
    if os.environ.get("CORRAL_PURE_PYTHON") == "1":
        raise ImportError
    from corral.engine.layout._readout import copy_out as copy_out
    from corral.engine.layout._readout import to_dicts as to_dicts

    KIND = "c"
except ImportError:
    copy_out, to_dicts, KIND = python_copy_out, python_to_dicts, "python"
