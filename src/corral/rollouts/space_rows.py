"""Values of a space by row and slot: `[rows, slots, ...]`, one array per part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.codec import Codec
from corral.engine.layout.composite import CompositeCodec
from corral.engine.layout.leaves import ArrayCodec
from corral.rollouts.space_parts import SpacePart, assembled, objects, parts_of

Array = NDArray[Any]
At = Any
"""Where rows are: a row for all slots, or (row or rows, slots) for some."""


class SpaceRows:
    """What was seen, or done; `rows` rows of `slots` values."""

    def __init__(
        self,
        codec: Codec,
        rows: int,
        slots: int,
        dtype_of: Callable[[SpacePart], np.dtype[Any]] | None = None,
    ) -> None:
        self._codec = codec
        self.parts = parts_of(codec)
        self.arrays = [
            np.zeros(
                (rows, slots, *part.shape), dtype_of(part) if dtype_of else part.dtype
            )
            for part in self.parts
        ]
        plain = isinstance(codec, ArrayCodec)
        self.plain: Array | None = self.arrays[0] if plain else None
        """The array itself, where there is one and nothing else."""

    def write(self, at: At, batch: Any) -> None:
        """Copy a batch as a pool returns it."""
        for part, array in zip(self.parts, self.arrays, strict=True):
            array[at] = part.array_of(batch)

    def take(self, at: At, batch: Any, count: int) -> None:
        """Copy a batch as a pool is given it, in a dtype that loses nothing."""
        plain = self.plain
        if plain is not None and getattr(batch, "dtype", None) is plain.dtype:
            plain[at] = batch
            return
        for place, values in enumerate(canonical(self._codec, batch, count)):
            array = self.arrays[place]
            if not np.can_cast(values.dtype, array.dtype, "safe"):
                wide = np.promote_types(values.dtype, array.dtype)
                array = self.arrays[place] = array.astype(wide)
            array[at] = values
        if plain is not None:
            self.plain = self.arrays[0]

    def row(self, at: At) -> list[Array]:
        """The values there, part by part; views if it is one whole row."""
        if self.plain is not None:
            return [self.plain[at]]
        return [array[at] for array in self.arrays]

    def whole(self) -> Any:
        """All rows, in the space's structure; not a copy."""
        return assembled(self._codec, self.arrays)


def as_batch(codec: Codec, arrays: Sequence[Array]) -> Any:
    """A batch as pools return it, out of the arrays of its parts."""
    return assembled(
        codec, [tuple(array) if array.dtype == object else array for array in arrays]
    )


def canonical(codec: Codec, batch: Any, count: int) -> list[Array]:
    """The arrays of a batch's parts, for whatever a pool takes as one."""
    return list(_canonical(codec, batch, count))


def _canonical(codec: Codec, batch: Any, count: int) -> Iterator[Array]:
    if isinstance(codec, CompositeCodec):
        batched = codec.is_batched(batch)
        for part in codec.parts:
            key = part.key
            values = batch[key] if batched else [value[key] for value in batch]
            yield from _canonical(part.codec, values, count)
    elif isinstance(codec, ArrayCodec):
        yield codec.split(batch, count)[0][0]
    else:
        yield objects(list(batch))
