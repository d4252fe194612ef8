"""What every codec can do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Encode = Callable[[int, int, Any], "list[Any] | None"]
Decode = Callable[[int, int, "Sequence[Any] | None"], Any]
Walk = Callable[[int], Iterable[Any]]
Mail = Sequence[tuple[Any, ...]]
"""The mailed parts of a batch: for each part, its value in every slot."""
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
    """

    leaves: tuple[Leaf, ...]
    """The fixed leaves, in the order of every list of arrays below."""
    mailed: int
    """How many parts of each value are mailed instead."""
    plain: bool = False
    """Whether a value is its one leaf: an array that may be copied as it is."""

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
