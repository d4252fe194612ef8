"""The parts of a space's values, and how values are put together from them.

    {"camera": [n, 84, 84], "arm": ([n, 7], ("go", ...))}      a batch
        │                      │          │
     ('camera',)          ('arm', 0)  ('arm', 1)               its parts

Parts of fixed size are arrays. What has no fixed size, and values of spaces that only
the user knows, are kept as they are, in arrays of objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.codec import Codec
from corral.engine.layout.composite import CompositeCodec
from corral.engine.layout.leaves import ArrayCodec
from corral.engine.layout.packed import PackedCodec

Array = NDArray[Any]
OBJECT_DTYPE = np.dtype(object)


@dataclass(frozen=True, slots=True)
class SpacePart:
    """One array of a batch."""

    path: tuple[Any, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Of one value."""

    @property
    def name(self) -> str:
        """The path as text; "" where the value is the array."""
        return ".".join(map(str, self.path))

    def of(self, batch: Any) -> Any:
        """This part of a batch."""
        for key in self.path:
            batch = batch[key]
        return batch

    def value_at(self, batch: Any, position: int) -> Any:
        """This part of one value of a batch; a copy, if it is an array."""
        value = (self.of(batch) if self.path else batch)[position]
        return value.copy() if self.shape else value

    def array_of(self, batch: Any) -> Array:
        """The same as an array, also where the batch has a tuple of values."""
        values = self.of(batch)
        return objects(values) if self.dtype is OBJECT_DTYPE else values


def parts_of(codec: Codec, path: tuple[Any, ...] = ()) -> tuple[SpacePart, ...]:
    """The parts of the codec's values, depth first."""
    return tuple(_walk(codec, path))


def _walk(codec: Codec, path: tuple[Any, ...]) -> Iterator[SpacePart]:
    if isinstance(codec, PackedCodec):  # of batches nothing is seen of it
        yield from _walk(codec.inner, path)
    elif isinstance(codec, CompositeCodec):
        for part in codec.parts:
            yield from _walk(part.codec, (*path, part.key))
    elif isinstance(codec, ArrayCodec):
        yield SpacePart(path, codec.dtype, codec.shape)
    else:
        yield SpacePart(path, OBJECT_DTYPE, ())


def assembled(codec: Codec, arrays: Sequence[Any]) -> Any:
    """One value of arrays, with whatever leading axes they have."""
    return _assembled(codec, iter(arrays))


def _assembled(codec: Codec, arrays: Iterator[Any]) -> Any:
    if isinstance(codec, PackedCodec):
        return _assembled(codec.inner, arrays)
    if isinstance(codec, CompositeCodec):
        return codec.join([_assembled(part.codec, arrays) for part in codec.parts])
    return next(arrays)


def objects(values: Any) -> Array:
    """An array whose items are these values, whatever they are."""
    if isinstance(values, np.ndarray) and values.dtype == OBJECT_DTYPE:
        return values
    array = np.empty(len(values), object)
    for position, value in enumerate(values):
        array[position] = value
    return array
