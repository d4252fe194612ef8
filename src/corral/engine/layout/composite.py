"""Codecs of several leaves.

    DictCodec, TupleCodec    the leaves of their parts, depth first
    PackedCodec              all leaves one behind the other, in one array of bytes

The last is for adapters that have the leaves of every step in one buffer already: the
recorder then copies one array, and no Python runs for the leaves. Seven small ones cost
2 µs when written one by one, and three times that where envs keep the caches busy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from corral.engine.layout.contract import (
    Array,
    Codec,
    Decode,
    Encode,
    Leaf,
    Mail,
    Split,
    Walk,
    described_value,
)
from corral.engine.layout.fields import aligned
from corral.engine.layout.leaves import ArrayCodec, check_count, split_items
from corral.errors import SpaceMismatch


@dataclass(frozen=True, slots=True)
class CompositePart:
    """One member of a Dict or Tuple, and where its leaves are among all leaves."""

    key: Any
    codec: Codec
    leaves: slice
    mail: slice


class CompositeCodec(Codec):
    """The common part of Dict and Tuple: parts, read as `value[key]`.

    Attributes:
        native: The type of a value that needs no check.
    """

    native: type[Any]
    parts: tuple[CompositePart, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    mailed: int = 0

    def __init__(self, members: Iterable[tuple[Any, Codec]]) -> None:
        for key, codec in members:
            end, mail_end = (
                len(self.leaves) + len(codec.leaves),
                self.mailed + codec.mailed,
            )
            own, mail = slice(len(self.leaves), end), slice(self.mailed, mail_end)
            self.parts += (CompositePart(key, codec, own, mail),)
            self.leaves += tuple(
                replace(leaf, path=(key, *leaf.path)) for leaf in codec.leaves
            )
            self.mailed = mail_end
        self.keys = [part.key for part in self.parts]

    def encoder(self, arrays: Sequence[Array], name: str = "obs") -> Encode:
        native, count, check = self.native, len(self.parts), self.check
        encoders = [
            (part.key, part.codec.encoder(arrays[part.leaves], _named(name, part)))
            for part in self.parts
        ]

        def encode(row: int, slot: int, value: Any) -> list[Any] | None:
            if type(value) is not native or len(value) != count:
                check(value, name)
            mailed: list[Any] | None = None
            try:
                for key, encode_part in encoders:
                    rest = encode_part(row, slot, value[key])
                    if rest:
                        mailed = [*(mailed or ()), *rest]
            except KeyError:
                check(value, name)
                raise
            return mailed

        return encode

    def decoder(self, arrays: Sequence[Array]) -> Decode:
        join = self.join
        parts = [(p.codec.decoder(arrays[p.leaves]), p.mail) for p in self.parts]

        def decode(row: int, slot: int, mailed: Sequence[Any] | None) -> Any:
            return join(
                [decode(row, slot, mailed and mailed[mail]) for decode, mail in parts]
            )

        return decode

    def walker(self, arrays: Sequence[Array]) -> Walk | None:
        """See Codec.walker; the parts are walked side by side."""
        join = self.join
        walks = [part.codec.walker(arrays[part.leaves]) for part in self.parts]
        sure = [walk for walk in walks if walk is not None]
        if not walks or len(sure) < len(walks):
            return super().walker(arrays)
        return lambda row: map(join, zip(*[walk(row) for walk in sure], strict=True))

    def assemble(self, leaf_batches: Sequence[Array], mailed: Mail) -> Any:
        parts = [
            part.codec.assemble(leaf_batches[part.leaves], mailed[part.mail])
            for part in self.parts
        ]
        return self.join(parts)

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        if not self.is_batched(batch):
            return self._split_items(batch, count, name)
        self.check(batch, name)
        return self._split_parts(batch, count, name)

    def _split_items(self, items: Any, count: int, name: str) -> Split:
        """One value per slot, seen as one value of lists."""
        check_count(items, count, name)
        for slot, item in enumerate(items):
            self.check(item, f"{name}[{slot}]")
        parts = {part.key: [item[part.key] for item in items] for part in self.parts}
        try:
            return self._split_parts(parts, count, name)
        except SpaceMismatch:
            split_items(self, items, count, name)  # fails under the name of the item
            raise

    def _split_parts(self, batch: Any, count: int, name: str) -> Split:
        arrays: list[Array] = []
        columns: list[tuple[Any, ...]] = []
        for part in self.parts:
            part_name = f"{name}[{part.key!r}]"
            split = part.codec.split(batch[part.key], count, part_name)
            arrays += split[0]
            columns += split[1]
        return arrays, columns

    def join(self, values: Sequence[Any]) -> Any:
        """One value out of one value per part."""
        raise NotImplementedError("join(values)")

    def check(self, value: Any, name: str) -> None:
        """Raise unless the value has exactly these parts."""
        raise NotImplementedError("check(value, name)")

    def is_batched(self, batch: Any) -> bool:
        """Whether this is one value of batches rather than one value per slot."""
        raise NotImplementedError("is_batched(batch)")


def _named(name: str, part: CompositePart) -> str:
    return f"{name}[{part.key!r}]"


class DictCodec(CompositeCodec):
    """Parts by key, in the space's own order."""

    native = dict

    def join(self, values: Sequence[Any]) -> dict[Any, Any]:
        # Not strict: the keyword alone doubles the cost, and no length is in doubt.
        return dict(zip(self.keys, values))  # noqa: B905

    def check(self, value: Any, name: str) -> None:
        if not isinstance(value, Mapping):
            got = described_value(value)
            raise SpaceMismatch(f"{name} {got}; its space says a dict of {self.keys}")
        if value.keys() != set(self.keys):
            raise SpaceMismatch(
                f"{name} has keys {list(value)}; its space says {self.keys}"
            )

    def is_batched(self, batch: Any) -> bool:
        return isinstance(batch, Mapping)


class TupleCodec(CompositeCodec):
    """Parts by position."""

    native = tuple

    def join(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values)

    def check(self, value: Any, name: str) -> None:
        sequence = isinstance(value, (tuple, list)) or (
            isinstance(value, np.ndarray) and value.ndim > 0
        )
        if not sequence or len(value) != len(self.parts):
            got = described_value(value) + (f" of {len(value)}" if sequence else "")
            wants = f"its space says a tuple of {len(self.parts)}"
            raise SpaceMismatch(f"{name} {got}; {wants}")

    def is_batched(self, batch: Any) -> bool:
        # A list is always one action per slot; a tuple only where it cannot be the
        # batched form, which is how Gymnasium reads it.
        return isinstance(batch, tuple) and len(batch) == len(self.parts)


_ALIGNMENT = 16
# Slots of two workers never share a cache line.
CACHE_LINE_BYTES = 64


class PackedCodec(Codec):
    """A value is its buffer; a batch is what the inner codec makes of the leaves."""

    mailed = 0
    plain = True

    def __init__(self, inner: Codec) -> None:
        assert not inner.mailed, "a mailed value has no leaf"
        self.inner = inner
        self._places: list[tuple[int, Leaf]] = []
        end = 0
        for leaf in inner.leaves:
            start = aligned(end, _ALIGNMENT)
            self._places.append((start, leaf))
            end = start + leaf.dtype.itemsize * math.prod(leaf.shape)
        self.size = max(CACHE_LINE_BYTES, aligned(end, CACHE_LINE_BYTES))
        self._bytes = ArrayCodec(np.uint8, (self.size,))
        self.leaves = self._bytes.leaves

    def buffer(self) -> tuple[Array, list[Array]]:
        """A value to be written to, and its leaves as `(1, *leaf.shape)`."""
        buffer = np.zeros(self.size, np.uint8)
        return buffer, self._unpacked(buffer[np.newaxis])

    def _unpacked(self, batch: Array) -> list[Array]:
        """The leaves in a batch of buffers, as views."""
        arrays = []
        for start, leaf in self._places:
            end = start + leaf.dtype.itemsize * math.prod(leaf.shape)
            array = batch[..., start:end].view(leaf.dtype)
            arrays.append(array.reshape(*batch.shape[:-1], *leaf.shape))
        return arrays

    def encoder(self, arrays: Sequence[Array], name: str = "obs") -> Encode:
        return self._bytes.encoder(arrays, name)

    def decoder(self, arrays: Sequence[Array]) -> Decode:
        return self.inner.decoder(self._unpacked(arrays[0]))

    def walker(self, arrays: Sequence[Array]) -> Walk | None:
        return self.inner.walker(self._unpacked(arrays[0]))

    def assemble(self, leaf_batches: Sequence[Array], mailed: Mail) -> Any:
        return self.inner.assemble(self._unpacked(leaf_batches[0]), ())

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        leaves, _ = self.inner.split(batch, count, name)
        packed = np.zeros((count, self.size), np.uint8)
        for array, leaf in zip(self._unpacked(packed), leaves, strict=True):
            array[...] = leaf
        return [packed], []
