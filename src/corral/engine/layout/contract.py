"""What every codec can do, and which values may be written to a leaf.

Same-kind casts pass silently, as do NaN and values out of bounds. A wrong shape, a
wrong structure or a cast of another kind (float to int) raises SpaceMismatch. Nothing
is ever broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from corral.errors import SpaceMismatch

Array = npt.NDArray[Any]
Encode = Callable[[int, int, Any], "list[Any] | None"]
Decode = Callable[[int, int, "Sequence[Any] | None"], Any]
Walk = Callable[[int], Iterable[Any]]
# The mailed parts of a batch: for each part, its value in every slot.
Mail = Sequence[tuple[Any, ...]]
Split = tuple[list[Array], list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One fixed-size array of a value; `path` is () where the value is the array."""

    path: tuple[str | int, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Codec(Protocol):
    """How the values of one space live in a block.

    The block gives each leaf an array of shape (rows, slots, *leaf.shape):

        arrays = [np.zeros((2, slots, *l.shape), l.dtype) for l in codec.leaves]
        encode, decode = codec.encoder(arrays), codec.decoder(arrays)
        mailed = encode(row, slot, env.observation_space.sample())
        value = decode(row, slot, mailed)
        batch = codec.assemble([array[row] for array in arrays], mailed_columns)
        arrays, mailed_columns = codec.split(batch, slots)

    Inherit from it to get `plain` and `walker`.

    Attributes:
        leaves: The fixed leaves, in the order of every list of arrays below.
        mailed: How many parts of each value are mailed instead.
        plain: Whether a value is its one leaf: an array that may be copied as it is.
    """

    leaves: tuple[Leaf, ...]
    mailed: int
    plain: bool = False

    def encoder(self, arrays: Sequence[Array], name: str = "obs") -> Encode:
        """A function that writes one value at (row, slot); returns what is mailed.

        It returns None when `mailed` is 0, otherwise that many values in a list. It
        keeps views of the arrays: drop it before their memory is closed.
        """

    def decoder(self, arrays: Sequence[Array]) -> Decode:
        """A function that reads the value at (row, slot), as a copy."""

    def walker(self, arrays: Sequence[Array]) -> Walk | None:
        """A function that reads one row, slot by slot; None where parts are mailed."""
        if self.mailed or not arrays:
            return None
        decode, slots = self.decoder(arrays), range(arrays[0].shape[1])
        return lambda row: [decode(row, slot, None) for slot in slots]

    def assemble(self, leaf_batches: Sequence[Array], mailed: Mail) -> Any:
        """One batch value out of (slots, *leaf.shape) arrays and mailed columns."""

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        """The inverse of assemble, for any form of `count` values."""


# Bits of an integer that an error writes out.
LONGEST = 256


@lru_cache
def castable(dtype: np.dtype[Any]) -> frozenset[np.dtype[Any]]:
    """The ordinary dtypes that may be written to a leaf: same kind or a safer one."""
    ordinary = [np.dtype(code) for code in "?bhilqpBHILQPefdg"]
    return frozenset(d for d in ordinary if np.can_cast(d, dtype, "same_kind"))


def casts(value: Any, array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether `array`, which is numpy's reading of `value`, may be written as dtype."""
    if not hasattr(value, "dtype"):
        # Python's own numbers have no width and no sign bit: the value has to fit.
        if array.size == 0:
            return True
        if array.dtype.kind in "iu" and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            return limits.min <= int(array.min()) and int(array.max()) <= limits.max
    return np.can_cast(array.dtype, dtype, "same_kind")


def widened(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """The widest dtype of the same kind.

    Gymnasium hands an env the action it was given: float64 into a float32 space stays
    float64, and the trajectory depends on it.
    """
    wide = {"f": "f8", "i": "i8", "u": "u8", "c": "c16"}.get(dtype.kind)
    return dtype if wide is None else np.dtype(wide)


@lru_cache
def unchanged(dtype: np.dtype[Any]) -> frozenset[np.dtype[Any]]:
    """Those of `castable` that the widest dtype of this kind holds as they are."""
    wide = widened(dtype)
    return frozenset(
        one
        for one in castable(dtype)
        if one.kind in ("b", wide.kind) and one.itemsize <= wide.itemsize
    )


def first_changed(array: Array, dtype: np.dtype[Any]) -> tuple[int, ...] | None:
    """Where the first value is that even the widest dtype of this kind changes.

    Such are integers beyond 2**53 for a float, and beyond 2**63 for a signed integer.
    """
    if array.dtype in unchanged(dtype):
        return None
    wide: np.dtype[Any] = widened(dtype)
    if wide.kind in "iu":
        limits = np.iinfo(wide)
        kept = (array >= limits.min) & (array <= limits.max)
    else:
        with np.errstate(all="ignore"):
            kept = (array.astype(wide).astype(array.dtype) == array) | (array != array)
    return None if kept.all() else tuple(np.argwhere(~kept)[0].tolist())


def described_value(value: Any, array: Array | None = None) -> str:
    """How an error names a value: "is uint8 (84, 84)", "is 0.5 (float64)"."""
    if value is None:
        return "is None"
    if array is None or array.dtype.kind not in "biufc":
        kind = type(value).__name__
        return f"is a{'n' * (kind[0] in 'aeiouAEIOU')} {kind}"
    if array.ndim == 0:
        return f"is {array} ({array.dtype})"
    return f"is {array.dtype} {array.shape}"


def beyond(array: Array, dtype: np.dtype[Any]) -> str:
    """Names the first integer that does not fit this dtype of integers; "" if all do.

    >>> beyond(np.array(2**64, object), np.dtype(np.int64))
    ' is 18446744073709551616, which does not fit int64'
    >>> beyond(np.array([0, 300]), np.dtype(np.uint8))
    '[1] is 300, which does not fit uint8'
    """
    if dtype.kind not in "iu" or array.dtype.kind not in "iuO":
        return ""
    limits = np.iinfo(dtype)
    for index, value in np.ndenumerate(array):
        whole = isinstance(value, (int, np.integer))
        if whole and not limits.min <= int(value) <= limits.max:
            place = "".join(f"[{at}]" for at in index)
            bits = int(value).bit_length()
            # Python refuses to write out very long integers.
            text = str(value) if bits <= LONGEST else f"an integer of {bits:,} bits"
            return f"{place} is {text}, which does not fit {dtype}"
    return ""


def unreadable(name: str, value: Any, error: Exception) -> SpaceMismatch:
    """The error for a value that numpy cannot convert to an array."""
    return SpaceMismatch(
        f"{name} {described_value(value)} that numpy cannot read: {error}"
    )
