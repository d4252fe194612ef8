"""Storage by slot and row: `(slots, rows, ...)`, one array per leaf.

An array grows with the rows and takes the widest dtype of its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.codec import Codec
from corral.errors import OptionError
from corral.rollouts.space_rows import objects

Array = NDArray[Any]
INITIAL_ROWS = 16
"""Initial number of rows, if it is not known."""


class SlotRowArray:
    """One array of any shape per slot and row."""

    def __init__(self, name: str, slots: int, rows: int = INITIAL_ROWS) -> None:
        self._name = name
        self._slots = slots
        self._rows = rows
        self._array: Array | None = None

    def write(self, slots: Array, rows: Array, values: Array) -> None:
        """Copy one value per slot into its row."""
        array = self._array
        if (
            array is None
            or array.dtype != values.dtype
            or array.shape[2:] != values.shape[1:]
        ):
            array = self._fitting(values)
        try:
            array[slots, rows] = values
        except IndexError:  # cheaper than a check of every batch
            self._grow(int(rows.max()) + 1)[slots, rows] = values

    def _fitting(self, values: Array) -> Array:
        """The array, in a dtype that holds these values without loss."""
        if self._array is None:
            shape = (self._slots, self._rows, *values.shape[1:])
            self._array = np.empty(shape, values.dtype)
        array = self._array
        if values.shape[1:] != array.shape[2:]:
            raise OptionError(
                f"{self._name} has shape {values.shape[1:]} per slot; before it had "
                f"shape {array.shape[2:]}"
            )
        if not np.can_cast(values.dtype, array.dtype, "safe"):
            wide = np.promote_types(values.dtype, array.dtype)
            array = self._array = array.astype(wide)
        return array

    def _grow(self, rows: int) -> Array:
        """The array, enlarged to twice this many rows."""
        array = self._array
        assert array is not None
        grown = np.empty_like(array, shape=(len(array), 2 * rows, *array.shape[2:]))
        grown[:, : array.shape[1]] = array
        self._array = grown
        return grown

    def read(self, slot: int, rows: slice) -> Array:
        """A copy of some rows of one slot."""
        assert self._array is not None, f"{self._name} was read before it was written"
        return self._array[slot, rows].copy()

    def move(self, slot: int, row: int) -> None:
        """Copy a row of one slot to its first row."""
        if self._array is not None and row < self._array.shape[1]:
            self._array[slot, 0] = self._array[slot, row]


class SlotRowSpace:
    """Values of a space, one array per leaf."""

    def __init__(
        self, name: str, slots: int, codec: Codec, rows: int = INITIAL_ROWS
    ) -> None:
        self._name = name
        self._codec = codec
        parts = range(len(codec.leaves) + codec.mailed)
        self._arrays = [SlotRowArray(name, slots, rows) for _ in parts]
        # Read before the first write: no episode has ended yet.
        self._empty = [np.empty((0, *leaf.shape), leaf.dtype) for leaf in codec.leaves]
        self._empty += [np.empty(0, object)] * codec.mailed

    def split(self, batch: Any, count: int) -> list[Array]:
        """The leaves of a batch of `count` values."""
        leaves, mailed = self._codec.split(batch, count, self._name)
        return [*leaves, *map(objects, mailed)]

    def write(self, slots: Array, rows: Array, leaves: Iterable[Array]) -> None:
        """Copy one value per slot into its row."""
        for array, values in zip(self._arrays, leaves, strict=True):
            array.write(slots, rows, values)

    def read(self, slot: int, rows: slice) -> Any:
        """A copy of some rows of one slot, as a batch."""
        if rows.stop == 0:
            return self._assembled(self._empty)
        return self._assembled([array.read(slot, rows) for array in self._arrays])

    def _assembled(self, parts: Sequence[Array]) -> Any:
        count = len(self._codec.leaves)
        mailed = [tuple(column) for column in parts[count:]]
        return self._codec.assemble(parts[:count], mailed)

    def move(self, slot: int, row: int) -> None:
        """Copy a row of one slot to its first row."""
        for array in self._arrays:
            array.move(slot, row)
