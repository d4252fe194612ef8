"""Storage by slot and row: `(slots, rows, ...)`, one array per name.

An array grows with the rows and takes the widest dtype of its values.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.codec import Codec
from corral.errors import OptionError
from corral.rollouts.space_rows import objects, widened

Array = NDArray[Any]
INITIAL_ROWS = 16
"""Initial number of rows, if it is not known."""


class SlotRows:
    """One value of each name per slot and row; of a space, one for each leaf."""

    def __init__(self, slots: int, rows: int = INITIAL_ROWS) -> None:
        self._slots = slots
        self._rows = rows
        self._arrays: dict[Hashable, Array] = {}

    def write(self, name: Hashable, slots: Array, rows: Array, values: Array) -> None:
        """Copy one value per slot into its row."""
        array = self._arrays.get(name)
        if (
            array is None
            or array.dtype != values.dtype
            or array.shape[2:] != values.shape[1:]
        ):
            array = self._fitting(name, values)
        try:
            array[slots, rows] = values
        except IndexError:  # cheaper than a check of every batch
            shape = (len(array), 2 * (int(rows.max()) + 1), *array.shape[2:])
            grown = self._arrays[name] = np.empty_like(array, shape=shape)
            grown[:, : array.shape[1]] = array
            grown[slots, rows] = values

    def write_leaves(
        self, name: str, slots: Array, rows: Array, leaves: Iterable[Array]
    ) -> None:
        """Copy one value of a space per slot into its row."""
        for place, values in enumerate(leaves):
            self.write((name, place), slots, rows, values)

    def _fitting(self, name: Hashable, values: Array) -> Array:
        """The array, in a dtype that holds these values without loss."""
        array = self._arrays.get(name)
        if array is None:
            shape = (self._slots, self._rows, *values.shape[1:])
            array = np.empty(shape, values.dtype)
        if values.shape[1:] != array.shape[2:]:
            raise OptionError(
                f"{name} has shape {values.shape[1:]} per slot; before it had "
                f"shape {array.shape[2:]}"
            )
        self._arrays[name] = array = widened(array, values.dtype)
        return array

    def read(self, name: Hashable, slot: int, rows: slice) -> Array:
        """A copy of some rows of one slot."""
        return self._arrays[name][slot, rows].copy()

    def read_batch(self, name: str, codec: Codec, slot: int, rows: slice) -> Any:
        """The same of a space, as a batch."""
        count = len(codec.leaves)
        if rows.stop == 0:  # perhaps before the first write: no episode has ended
            parts = [np.empty((0, *leaf.shape), leaf.dtype) for leaf in codec.leaves]
            return codec.assemble(parts, [()] * codec.mailed)
        places = range(count + codec.mailed)
        parts = [self.read((name, place), slot, rows) for place in places]
        return codec.assemble(parts[:count], [tuple(one) for one in parts[count:]])

    def move(self, slot: int, row: int) -> None:
        """Copy a row of one slot to its first row."""
        for array in self._arrays.values():
            if row < array.shape[1]:
                array[slot, 0] = array[slot, row]


def leaves_of(codec: Codec, batch: Any, count: int, name: str) -> list[Array]:
    """The leaves of a batch of `count` values."""
    leaves, mailed = codec.split(batch, count, name)
    return [*leaves, *map(objects, mailed)]
