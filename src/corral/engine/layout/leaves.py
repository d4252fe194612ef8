"""The codecs of spaces without parts: one leaf of the block, or none at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from corral.engine.layout.contract import (
    Array,
    Codec,
    Decode,
    Encode,
    Leaf,
    Mail,
    Split,
    Walk,
    beyond,
    castable,
    casts,
    described_value,
    first_changed,
    unchanged,
    unreadable,
    widened,
)
from corral.errors import SpaceMismatch


class ArrayCodec(Codec):
    """One leaf: Box, MultiDiscrete, MultiBinary and, with shape (), Discrete."""

    mailed = 0
    plain = True

    def __init__(
        self, dtype: npt.DTypeLike, shape: Iterable[int], wants: str = ""
    ) -> None:
        """`wants`: the error for a non-integer, e.g. "Discrete(2) needs an integer"."""
        # A dtype that was pickled is not numpy's own object, and fails a test by `is`.
        self.dtype = np.dtype(np.dtype(dtype).str)
        self.shape = tuple(int(length) for length in shape)
        self.wants = wants
        self.leaves = (Leaf((), self.dtype, self.shape),)

    def encoder(self, arrays: Sequence[Array], name: str = "obs") -> Encode:
        (array,) = arrays
        make = self._array_encoder if self.shape else self._scalar_encoder
        return make(array, name)

    def _array_encoder(self, array: Array, name: str) -> Encode:
        shape, dtype, accepted = self.shape, self.dtype, castable(self.dtype)
        fit, ndarray = self.fit, np.ndarray
        # One view per slot made now: `array[row, slot] = value` costs 370 ns, this 220.
        cells = [list(slots) for slots in array]

        def encode(row: int, slot: int, value: Any) -> None:
            if (
                type(value) is ndarray
                and value.shape == shape
                # Identity is faster, but arrays that were pickled do not have it.
                and (value.dtype is dtype or value.dtype in accepted)
            ):
                cells[row][slot][...] = value
            else:
                cells[row][slot][...] = fit(value, name)

        return encode

    def _scalar_encoder(self, array: Array, name: str) -> Encode:
        fit, scalar, dtype, ndarray = self.fit, self.dtype.type, self.dtype, np.ndarray
        # An int that does not fit raises for int64; numpy 1 wraps it for smaller types.
        python = {"int64": int, "float64": float}.get(self.dtype.name, scalar)

        def encode(row: int, slot: int, value: Any) -> None:
            kind = type(value)
            try:
                if kind is scalar or kind is python:
                    array[row, slot] = value
                elif kind is ndarray and not value.ndim and value.dtype is dtype:
                    array[row, slot] = value  # some envs make an array of every number
                else:
                    array[row, slot] = fit(value, name)
            except OverflowError:
                raise self._mismatch(name, value, np.asarray(value)) from None

        return encode

    def decoder(self, arrays: Sequence[Array]) -> Decode:
        (array,) = arrays
        if not self.shape:
            return lambda row, slot, mailed: array[row, slot]
        return lambda row, slot, mailed: array[row, slot].copy()

    def walker(self, arrays: Sequence[Array]) -> Walk:
        """See Codec.walker; one copy for all, of which each env gets its row."""
        (array,) = arrays
        slots = array.shape[1]
        # An array ends its iteration with an IndexError, which takes 0.3 µs to make.
        return lambda row: islice(array[row].copy(), slots)

    def assemble(self, leaf_batches: Sequence[Array], mailed: Mail) -> Array:
        return leaf_batches[0]

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        expected = (count, *self.shape)
        if type(batch) is np.ndarray and batch.shape == expected:
            # Not by identity: the dtype of a space that was unpickled is a copy.
            if batch.dtype == self.dtype or batch.dtype in unchanged(self.dtype):
                return [batch], []
            if batch.dtype in castable(self.dtype):
                return [self._unchanged(batch, name)], []
        listed = isinstance(batch, (list, tuple))
        try:
            array = np.asarray(batch)
        except Exception as error:
            if listed:  # ragged: find and name the item that does not fit
                return split_items(self, batch, count, name)
            raise unreadable(name, batch, error) from error
        if array.shape != expected:
            shape = f"has shape {array.shape}"
            got = shape if array.ndim else described_value(batch, array)
            raise SpaceMismatch(f"{name} {got}; expected {expected}: {one_each(count)}")
        if casts(batch, array, self.dtype):
            if listed and array.dtype.kind in "iu" and self.dtype.kind in "iu":
                return [array.astype(self.dtype)], []  # they fit, and have no width
            return [self._unchanged(array, name)], []
        items = batch if listed else list(array)
        split_items(self, items, count, name)
        # Each item fits by itself: numpy's own numbers are passed on, though they are
        # too large for the space's dtype.
        if np.can_cast(array.dtype, self.dtype, "same_kind"):
            return [self._unchanged(array, name)], []
        # Signed and unsigned integers, which numpy has joined as floats.
        array = np.stack([np.asarray(item).astype(object) for item in items])
        return [self._unchanged(array, name).astype(widened(self.dtype))], []

    def _unchanged(self, batch: Array, name: str) -> Array:
        """The same, if it can reach the envs without becoming other numbers."""
        at = first_changed(batch, self.dtype)
        if at is None:
            return batch
        raise SpaceMismatch(
            f"{name}[{at[0]}] is {batch[at]} ({batch.dtype}), which is another number "
            f"as {widened(self.dtype)}; its space says {self.dtype} {self.shape}"
        )

    def fit(self, value: Any, name: str) -> Array:
        """The value as an array that can be written to the leaf."""
        try:
            array = np.asarray(value)
        except Exception as error:
            raise unreadable(name, value, error) from error
        if array.shape != self.shape or not casts(value, array, self.dtype):
            raise self._mismatch(name, value, array)
        return array

    def _mismatch(self, name: str, value: Any, array: Array) -> SpaceMismatch:
        too_large = beyond(array, self.dtype) if array.shape == self.shape else ""
        if too_large:
            return SpaceMismatch(f"{name}{too_large}")
        says = f"its space says {self.dtype} {self.shape}"
        wants = self.wants if array.dtype.kind not in "iu" else ""
        return SpaceMismatch(f"{name} {described_value(value, array)}; {wants or says}")


class MailedCodec(Codec):
    """No leaf at all: values are returned to be pickled, and not checked."""

    leaves = ()
    mailed = 1

    def encoder(self, arrays: Sequence[Array], name: str = "obs") -> Encode:
        return lambda row, slot, value: [value]

    def decoder(self, arrays: Sequence[Array]) -> Decode:
        return lambda row, slot, mailed: mailed[0]  # type: ignore[index]

    def assemble(self, leaf_batches: Sequence[Array], mailed: Mail) -> tuple[Any, ...]:
        return mailed[0]

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        # An array is taken row by row, but a string is one value and not its letters.
        items = list(batch) if isinstance(batch, np.ndarray) and batch.ndim else batch
        check_count(items, count, name)
        return [], [tuple(items)]


def split_items(codec: Codec, items: Any, count: int, name: str) -> Split:
    """Split a list of one value per slot, by encoding each into fresh arrays."""
    check_count(items, count, name)
    arrays = [np.empty((1, count, *leaf.shape), leaf.dtype) for leaf in codec.leaves]
    encode = codec.encoder(arrays, name)
    columns: list[list[Any]] = [[] for _ in range(codec.mailed)]
    for slot, item in enumerate(items):
        try:
            mailed = encode(0, slot, item)
        except SpaceMismatch:
            # Once more, only to fail under the name of the item.
            codec.encoder(arrays, f"{name}[{slot}]")(0, slot, item)
            raise
        for column, value in zip(columns, mailed or (), strict=True):
            column.append(value)
    return [array[0] for array in arrays], [tuple(column) for column in columns]


def check_count(items: Any, count: int, name: str) -> None:
    """Raise unless this is a list or tuple of `count` items."""
    if not isinstance(items, (list, tuple)):
        raise SpaceMismatch(
            f"{name} {described_value(items)}; expected {one_each(count)}"
        )
    if len(items) != count:
        got = f"has {len(items)} item" + "s" * (len(items) != 1)
        raise SpaceMismatch(f"{name} {got}; expected {count}: {one_each(count)}")


def one_each(count: int) -> str:
    """What a batch of actions is."""
    return f"one for each of {count} slots" if count != 1 else "one action"
