"""Batches of a space: their arrays, storage by row and slot, and copies of Steps.

    {"camera": [n, 84, 84], "arm": ([n, 7], ("go", ...))}      a batch
        │                      │          │
     ('camera',)          ('arm', 0)  ('arm', 1)               its parts

Parts of fixed size are arrays. Values without a fixed size, and values of custom
spaces, are kept in arrays of objects.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.layout.codec import Codec, codec_for
from corral.engine.layout.composite import CompositeCodec, PackedCodec
from corral.engine.layout.infos import Infos
from corral.engine.layout.leaves import ArrayCodec
from corral.engine.layout.plan import SCALAR_FIELDS
from corral.errors import OptionError

Array = NDArray[Any]
# An index: a row for all slots, or (row or rows, slots) for some.
At = Any
OBJECT_DTYPE = np.dtype(object)


@dataclass(frozen=True, slots=True)
class SpacePart:
    """One array of a batch.

    Attributes:
        shape: Of one value.
    """

    path: tuple[Any, ...]
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        """The path as text; "" where a batch is the array."""
        return ".".join(map(str, self.path))

    def of(self, batch: Any) -> Any:
        """This part of a batch."""
        for key in self.path:
            batch = batch[key]
        return batch

    def array_of(self, batch: Any) -> Array:
        """The same as an array, also where the batch has a tuple of values."""
        values = self.of(batch)
        return objects(values) if self.dtype is OBJECT_DTYPE else values


class SpaceParts:
    """The parts of a space; takes batches apart and puts them together."""

    def __init__(self, space: Space[Any]) -> None:
        self._codec = codec_for(space)
        # Depth first.
        self.parts = tuple(_walk(self._codec, ()))
        # Whether a batch is one array.
        self.plain = isinstance(self._codec, ArrayCodec)
        self._join = _joiner(self._codec)

    def joined(self, arrays: Sequence[Any]) -> Any:
        """The arrays in the space's structure, with any number of leading axes."""
        return arrays[0] if self.plain else self._join(iter(arrays))

    def batch(self, arrays: Sequence[Array]) -> Any:
        """A batch as pools return it, from the arrays of its parts."""
        if self.plain:
            return arrays[0]
        return self.joined(
            [tuple(one) if one.dtype == OBJECT_DTYPE else one for one in arrays]
        )

    def arrays(self, batch: Any) -> list[Array]:
        """The arrays of the parts of a batch, as pools return it."""
        return [part.array_of(batch) for part in self.parts]

    def copied(self, batch: Any) -> Any:
        """A copy of a batch."""
        if self.plain:
            return batch.copy()
        return self.batch([array.copy() for array in self.arrays(batch)])

    def some(self, batch: Any, positions: Any) -> Any:
        """A copy of some values of a batch."""
        return self.batch([array[positions] for array in self.arrays(batch)])

    def value_at(self, batch: Any, position: int) -> list[Any]:
        """One value of a batch, part by part; copies of its arrays."""
        if self.plain:
            return [batch[position].copy()]
        values = [(part, part.of(batch)[position]) for part in self.parts]
        return [value.copy() if part.shape else value for part, value in values]

    def stacked(self, values: Sequence[list[Any]]) -> Any:
        """A batch of values that are given part by part."""
        return self.batch(self.stacked_parts(values))

    def stacked_parts(self, values: Sequence[list[Any]]) -> list[Array]:
        """The arrays of such a batch."""
        arrays = [
            np.empty((len(values), *part.shape), part.dtype) for part in self.parts
        ]
        for position, value in enumerate(values):
            for array, one in zip(arrays, value, strict=True):
                array[position] = one
        return arrays

    def split(self, batch: Any, count: int) -> list[Array]:
        """The arrays of `count` values, which have any form that a pool accepts."""
        return list(_split(self._codec, batch, count))


def sampled(space: Space[Any], rows: int, seed: int = 0) -> Any:
    """A batch of random values of a space, always the same."""
    drawn, whole = copy.deepcopy(space), SpaceParts(space)
    drawn.seed(seed)
    values = [drawn.sample() for _ in range(rows)]
    return whole.stacked([[part.of(one) for part in whole.parts] for one in values])


class SpaceRows:
    """`rows` rows of `slots` values, one array per part.

    Args:
        space: of the values.
        rows: number of rows.
        slots: number of slots.
        dtype_of: the dtype of a part, if it is not that of its space.
        memory: arrays to use, by the number of the part.
    """

    def __init__(
        self,
        space: SpaceParts,
        rows: int,
        slots: int,
        dtype_of: Callable[[SpacePart], np.dtype[Any]] | None = None,
        memory: Mapping[int, Array] | None = None,
    ) -> None:
        self._space = space
        given = memory or {}
        self.arrays = [
            given[number]
            if number in given
            else np.zeros(
                (rows, slots, *part.shape), dtype_of(part) if dtype_of else part.dtype
            )
            for number, part in enumerate(space.parts)
        ]

    def write(self, at: At, batch: Any) -> None:
        """Store a batch as a pool returns it."""
        if self._space.plain:
            self.arrays[0][at] = batch
            return
        for array, values in zip(self.arrays, self._space.arrays(batch), strict=True):
            array[at] = values

    def take(self, at: At, batch: Any, count: int) -> list[Array]:
        """Store a batch as a pool accepts it, in a dtype that loses nothing.

        Returns the stored values, part by part; views if `at` is one whole row.
        """
        arrays = self.arrays
        if self._space.plain and getattr(batch, "dtype", None) is arrays[0].dtype:
            arrays[0][at] = batch
            return [arrays[0][at]]
        for place, values in enumerate(self._space.split(batch, count)):
            arrays[place] = widened(arrays[place], values.dtype)
            arrays[place][at] = values
        return [array[at] for array in arrays]

    def some(self, rows: slice) -> Any:
        """Some rows in the space's structure, without a copy."""
        return self._space.joined([array[rows] for array in self.arrays])

    def whole(self) -> Any:
        """All rows in the space's structure, without a copy."""
        return self.arrays[0] if self._space.plain else self._space.joined(self.arrays)


def _walk(codec: Codec, path: tuple[Any, ...]) -> Iterator[SpacePart]:
    if isinstance(codec, PackedCodec):  # batches are those of its inner codec
        yield from _walk(codec.inner, path)
    elif isinstance(codec, CompositeCodec):
        for part in codec.parts:
            yield from _walk(part.codec, (*path, part.key))
    elif isinstance(codec, ArrayCodec):
        yield SpacePart(path, codec.dtype, codec.shape)
    else:
        yield SpacePart(path, OBJECT_DTYPE, ())


def _joiner(codec: Codec) -> Callable[[Iterator[Any]], Any]:
    """Made once: what a codec is takes longer to find out than its arrays to join."""
    if isinstance(codec, PackedCodec):
        return _joiner(codec.inner)
    if not isinstance(codec, CompositeCodec):
        return next
    return partial(_join, codec.join, [_joiner(part.codec) for part in codec.parts])


def _join(
    join: Callable[[list[Any]], Any],
    parts: list[Callable[[Iterator[Any]], Any]],
    arrays: Iterator[Any],
) -> Any:
    return join([part(arrays) for part in parts])


def _split(codec: Codec, batch: Any, count: int) -> Iterator[Array]:
    if isinstance(codec, CompositeCodec):
        batched = codec.is_batched(batch)
        if not batched and isinstance(batch, tuple) and codec.native is tuple:
            # With as many rows as parts it would be read as a batch.
            raise OptionError(
                f"a tuple of {len(batch)} was given for a space with "
                f"{len(codec.parts)} parts; return a tuple with an array for each "
                "part, or a list with an action for each row"
            )
        for part in codec.parts:
            key = part.key
            values = batch[key] if batched else [value[key] for value in batch]
            yield from _split(part.codec, values, count)
    elif isinstance(codec, ArrayCodec):
        yield codec.split(batch, count)[0][0]
    else:
        yield objects(list(batch))


def widened(array: Array, dtype: np.dtype[Any]) -> Array:
    """The array, in a dtype that also holds values of this one without loss."""
    if np.can_cast(dtype, array.dtype, "safe"):
        return array
    return array.astype(np.promote_types(dtype, array.dtype))


def objects(values: Any) -> Array:
    """An array of objects whose items are these values."""
    if isinstance(values, np.ndarray) and values.dtype == OBJECT_DTYPE:
        return values
    return np.fromiter(values, object, len(values))


# Steps that own their memory ----------------------------------------------------------


def owned(space: SpaceParts, step: Step) -> Step:
    """Return a copy without `final_obs`."""
    return Step(
        slots=step.slots.copy(),
        obs=space.copied(step.obs),
        final_obs=None,
        infos=step.infos,  # owns its memory
        final_infos={},
        **{name: getattr(step, name).copy() for name in SCALAR_FIELDS},
    )


def some_of(space: SpaceParts, step: Step, where: Array) -> Step:
    """Copy the rows at these positions, or where this is True, without `final_obs`."""
    positions = np.flatnonzero(where) if where.dtype == np.bool_ else where
    kept = list(enumerate(positions.tolist()))
    final, infos = step.final_infos, step.infos
    named = {new: infos.of(old) for new, old in kept} if infos else {}
    return replace(
        step,
        slots=step.slots[positions],
        obs=space.some(step.obs, positions),
        final_obs=None,
        infos=Infos([], {new: info for new, info in named.items() if info}),
        final_infos={new: final[old] for new, old in kept if old in final},
        previous_action=None,
        **{name: getattr(step, name)[positions] for name in SCALAR_FIELDS},
    )


def joined(space: SpaceParts, steps: Sequence[Step]) -> Step:
    """Join Steps of different slots into one copy, without `final_obs`."""
    each = [info for step in steps for info in step.infos.to_list(len(step))]
    arrays = zip(*(space.arrays(step.obs) for step in steps), strict=True)
    names = ("slots", *SCALAR_FIELDS)
    whole = Step(
        obs=space.batch([np.concatenate(parts) for parts in arrays]),
        final_obs=None,
        infos=Infos([], dict(enumerate(each))),
        final_infos={},
        **{name: np.concatenate([getattr(s, name) for s in steps]) for name in names},
    )
    return some_of(space, whole, np.argsort(whole.slots))
