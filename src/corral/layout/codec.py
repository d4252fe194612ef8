"""A codec stores the values of one space in the fixed-size leaves of a block.

    obs = {"rgb": ..., "speed": ..., "order": "go left"}
             |           |              |
           leaf 0      leaf 1        mailed 0      encode ->    <- decode
             |           |              |
    {"rgb": [slots, ...], "speed": [slots], "order": (slots values)}    <- assemble

Box, Discrete, MultiDiscrete and MultiBinary are one leaf each; Dict and Tuple join the
leaves of their parts, depth first. Every other space (Text, Sequence, Graph, OneOf, and
custom ones that `register_codec` was not told about) is *mailed*: its values are handed
back to the caller, who pickles them.

Same-kind casts pass silently, as do NaN and values out of bounds. A wrong shape, a
wrong structure or a cast of another kind (float to int) raises SpaceMismatch. Nothing
is ever broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, singledispatch
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from corral.errors import SpaceMismatch

Array = npt.NDArray[Any]
Encode = Callable[[int, int, Any], "list[Any] | None"]
Decode = Callable[[int, int, "Sequence[Any] | None"], Any]
Walk = Callable[[int], Iterable[Any]]
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

    def assemble(
        self, leaf_batches: Sequence[Array], mailed: Sequence[tuple[Any, ...]]
    ) -> Any:
        """One batch value out of (slots, *leaf.shape) arrays and mailed columns."""

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        """The inverse of assemble, for whatever a caller gives as `count` values."""


@singledispatch
def codec_for(space: Any) -> Codec:
    """The codec of a space; one that is not known to be of fixed size is mailed."""
    return MailedCodec()


def register_codec(space_type: type, factory: Callable[[Any], Codec]) -> None:
    """Use `factory(space)` for spaces of this type, also inside Dict and Tuple.

    Before the pool is made, and in its process alone: workers are sent the codec.
    Most custom spaces only need to say which plain space can stand in for them:

        >>> from dataclasses import astuple, make_dataclass
        >>> Point = make_dataclass("Point", ["x", "y"])
        >>> class Points(spaces.Space): ...
        >>> plane = spaces.Tuple([spaces.Box(-1.0, 1.0, ())] * 2)
        >>> register_codec(Points, lambda space: StandIn(
        ...     plane, pack=astuple, unpack=lambda pair: Point(*pair)))
        >>> [leaf.path for leaf in codec_for(spaces.Dict({"goal": Points()})).leaves]
        [('goal', 0), ('goal', 1)]
    """
    codec_for.register(space_type, factory)


class ArrayCodec(Codec):
    """One leaf: Box, MultiDiscrete, MultiBinary and, with shape (), Discrete."""

    mailed = 0
    plain = True

    def __init__(
        self, dtype: npt.DTypeLike, shape: Iterable[int], wants: str = ""
    ) -> None:
        """`wants` answers what is no integer, e.g. "Discrete(2) needs an integer"."""
        # A dtype that was pickled is not numpy's own object, and fails a test by `is`.
        self.dtype = np.dtype(np.dtype(dtype).str)
        self.shape = tuple(int(length) for length in shape)
        self.wants = wants
        self.leaves = (Leaf((), self.dtype, self.shape),)

    def encoder(self, arrays: Sequence[Array], name: str = "obs") -> Encode:
        """See Codec.encoder."""
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
        fit, scalar = self.fit, self.dtype.type
        # An int that does not fit raises for int64; numpy 1 wraps it for smaller types.
        python = {"int64": int, "float64": float}.get(self.dtype.name, scalar)

        def encode(row: int, slot: int, value: Any) -> None:
            kind = type(value)
            try:
                if kind is scalar or kind is python:
                    array[row, slot] = value
                else:
                    array[row, slot] = fit(value, name)
            except OverflowError:
                raise self._mismatch(name, value, np.asarray(value)) from None

        return encode

    def decoder(self, arrays: Sequence[Array]) -> Decode:
        """See Codec.decoder."""
        (array,) = arrays
        if not self.shape:
            return lambda row, slot, mailed: array[row, slot]
        cells = [list(slots) for slots in array]
        return lambda row, slot, mailed: cells[row][slot].copy()

    def walker(self, arrays: Sequence[Array]) -> Walk:
        """See Codec.walker; one copy for all, of which each env gets its row."""
        (array,) = arrays
        return lambda row: array[row].copy()

    def assemble(
        self, leaf_batches: Sequence[Array], mailed: Sequence[tuple[Any, ...]]
    ) -> Array:
        """See Codec.assemble."""
        return leaf_batches[0]

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        """See Codec.split."""
        expected = (count, *self.shape)
        if (
            type(batch) is np.ndarray
            and batch.shape == expected
            and (batch.dtype is self.dtype or batch.dtype in castable(self.dtype))
        ):
            return [batch], []
        listed = isinstance(batch, (list, tuple))
        try:
            array = np.asarray(batch)
        except Exception as error:
            if listed:  # ragged: one of the items is to blame, and will be named
                return split_items(self, batch, count, name)
            raise unreadable(name, batch, error) from error
        if array.shape != expected:
            got = f"has shape {array.shape}" if array.ndim else is_what(batch, array)
            raise SpaceMismatch(f"{name} {got}; expected {expected}: {one_each(count)}")
        if casts(batch, array, self.dtype):
            return [array], []
        return split_items(self, batch if listed else list(array), count, name)

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
        an_integer = array.dtype.kind in "iu"
        wants = f"its space says {self.dtype} {self.shape}"
        if self.wants and not an_integer:
            wants = self.wants
        return SpaceMismatch(f"{name} {is_what(value, array)}; {wants}")


class MailedCodec(Codec):
    """No leaf at all: values are handed back to be pickled, and not looked at."""

    leaves = ()
    mailed = 1

    def encoder(self, arrays: Sequence[Array], name: str = "obs") -> Encode:
        """See Codec.encoder."""
        return lambda row, slot, value: [value]

    def decoder(self, arrays: Sequence[Array]) -> Decode:
        """See Codec.decoder."""

        def decode(row: int, slot: int, mailed: Sequence[Any] | None) -> Any:
            assert mailed is not None, "a mailed value did not arrive"
            return mailed[0]

        return decode

    def assemble(
        self, leaf_batches: Sequence[Array], mailed: Sequence[tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        """See Codec.assemble."""
        return mailed[0]

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        """See Codec.split."""
        # An array is taken row by row, but a string is one value and not its letters.
        items = list(batch) if isinstance(batch, np.ndarray) and batch.ndim else batch
        check_count(items, count, name)
        return [], [tuple(items)]


@dataclass(frozen=True, slots=True)
class Part:
    """One member of a Dict or Tuple, and where its leaves are among all leaves."""

    key: Any
    codec: Codec
    leaves: slice
    mail: slice


class JoinedCodec(Codec):
    """What Dict and Tuple have in common: parts, read as `value[key]`."""

    native: type[Any]
    """The type of a value that needs no closer look."""

    def __init__(self, members: Iterable[tuple[Any, Codec]]) -> None:
        leaves: list[Leaf] = []
        parts: list[Part] = []
        mailed = 0
        for key, codec in members:
            end, mail_end = len(leaves) + len(codec.leaves), mailed + codec.mailed
            parts.append(
                Part(key, codec, slice(len(leaves), end), slice(mailed, mail_end))
            )
            leaves += [replace(leaf, path=(key, *leaf.path)) for leaf in codec.leaves]
            mailed = mail_end
        self.parts = tuple(parts)
        self.leaves = tuple(leaves)
        self.mailed = mailed

    def encoder(self, arrays: Sequence[Array], name: str = "obs") -> Encode:
        """See Codec.encoder."""
        native, count, check = self.native, len(self.parts), self.check
        encoders = [
            (
                part.key,
                part.codec.encoder(arrays[part.leaves], f"{name}[{part.key!r}]"),
            )
            for part in self.parts
        ]

        def encode(row: int, slot: int, value: Any) -> None:
            if type(value) is not native or len(value) != count:
                check(value, name)
            try:
                for key, encode_part in encoders:
                    encode_part(row, slot, value[key])
            except KeyError:
                check(value, name)
                raise

        def encode_and_mail(row: int, slot: int, value: Any) -> list[Any]:
            check(value, name)
            mailed: list[Any] = []
            for key, encode_part in encoders:
                mailed += encode_part(row, slot, value[key]) or ()
            return mailed

        return encode_and_mail if self.mailed else encode

    def decoder(self, arrays: Sequence[Array]) -> Decode:
        """See Codec.decoder."""
        join = self.join
        decoders = [
            (part.codec.decoder(arrays[part.leaves]), part.mail) for part in self.parts
        ]

        def decode(row: int, slot: int, mailed: Sequence[Any] | None) -> Any:
            return join([decode_part(row, slot, None) for decode_part, _ in decoders])

        def decode_mailed(row: int, slot: int, mailed: Sequence[Any] | None) -> Any:
            assert mailed is not None, "mailed values did not arrive"
            return join(
                [decode_part(row, slot, mailed[mail]) for decode_part, mail in decoders]
            )

        return decode_mailed if self.mailed else decode

    def walker(self, arrays: Sequence[Array]) -> Walk | None:
        """See Codec.walker; the parts are walked side by side."""
        join = self.join
        walks = [part.codec.walker(arrays[part.leaves]) for part in self.parts]
        sure = [walk for walk in walks if walk is not None]
        if not walks or len(sure) < len(walks):
            return super().walker(arrays)
        return lambda row: map(join, zip(*[walk(row) for walk in sure], strict=True))

    def assemble(
        self, leaf_batches: Sequence[Array], mailed: Sequence[tuple[Any, ...]]
    ) -> Any:
        """See Codec.assemble."""
        return self.join(
            [
                part.codec.assemble(leaf_batches[part.leaves], mailed[part.mail])
                for part in self.parts
            ]
        )

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        """See Codec.split."""
        if not self.is_batched(batch):
            return split_items(self, batch, count, name)
        self.check(batch, name)
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


class DictCodec(JoinedCodec):
    """Parts by key, in the space's own order."""

    native = dict

    def __init__(self, members: Iterable[tuple[Any, Codec]]) -> None:
        super().__init__(members)
        self.keys = [part.key for part in self.parts]

    def join(self, values: Sequence[Any]) -> dict[Any, Any]:
        """See JoinedCodec.join."""
        # Not strict: the keyword alone doubles the cost, and no length is in doubt.
        return dict(zip(self.keys, values))  # noqa: B905

    def check(self, value: Any, name: str) -> None:
        """See JoinedCodec.check."""
        if not isinstance(value, Mapping):
            got = is_what(value)
            raise SpaceMismatch(f"{name} {got}; its space says a dict of {self.keys}")
        if value.keys() != set(self.keys):
            raise SpaceMismatch(
                f"{name} has keys {list(value)}; its space says {self.keys}"
            )

    def is_batched(self, batch: Any) -> bool:
        """See JoinedCodec.is_batched."""
        return isinstance(batch, Mapping)


class TupleCodec(JoinedCodec):
    """Parts by position."""

    native = tuple

    def join(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """See JoinedCodec.join."""
        return tuple(values)

    def check(self, value: Any, name: str) -> None:
        """See JoinedCodec.check."""
        sequence = isinstance(value, (tuple, list)) or (
            isinstance(value, np.ndarray) and value.ndim > 0
        )
        if not sequence or len(value) != len(self.parts):
            got = is_what(value) + (f" of {len(value)}" if sequence else "")
            wants = f"its space says a tuple of {len(self.parts)}"
            raise SpaceMismatch(f"{name} {got}; {wants}")

    def is_batched(self, batch: Any) -> bool:
        """See JoinedCodec.is_batched."""
        # A list is always one action per slot; a tuple only where it cannot be the
        # batched form, which is how Gymnasium reads it.
        return isinstance(batch, tuple) and len(batch) == len(self.parts)


class StandIn(Codec):
    """Values of a custom space, stored as values of a plain one.

    A batch is a tuple of values, as Gymnasium makes it for custom spaces.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        *,
        pack: Callable[[Any], Any],
        unpack: Callable[[Any], Any],
    ) -> None:
        self.inner = codec_for(space)
        self.pack = pack
        self.unpack = unpack
        self.leaves = self.inner.leaves
        self.mailed = self.inner.mailed

    def encoder(self, arrays: Sequence[Array], name: str = "obs") -> Encode:
        """See Codec.encoder."""
        encode, pack = self.inner.encoder(arrays, name), self.pack
        return lambda row, slot, value: encode(row, slot, pack(value))

    def decoder(self, arrays: Sequence[Array]) -> Decode:
        """See Codec.decoder."""
        decode, unpack = self.inner.decoder(arrays), self.unpack
        return lambda row, slot, mailed: unpack(decode(row, slot, mailed))

    def assemble(
        self, leaf_batches: Sequence[Array], mailed: Sequence[tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        """See Codec.assemble; the only one that copies, value by value."""
        columns: list[Any] = [*leaf_batches, *mailed]
        count = len(columns[0]) if columns else 0
        decode = self.decoder([batch[np.newaxis] for batch in leaf_batches])
        return tuple(
            decode(0, slot, [column[slot] for column in mailed])
            for slot in range(count)
        )

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        """See Codec.split."""
        return split_items(self, batch, count, name)


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
        raise SpaceMismatch(f"{name} {is_what(items)}; expected {one_each(count)}")
    if len(items) != count:
        got = f"{len(items)} item" + "s" * (len(items) != 1)
        raise SpaceMismatch(f"{name} has {got}; expected {count}: {one_each(count)}")


def one_each(count: int) -> str:
    """What a batch of actions is."""
    return f"one action for each of the {count} slots" if count != 1 else "one action"


@lru_cache
def castable(dtype: np.dtype[Any]) -> frozenset[np.dtype[Any]]:
    """The ordinary dtypes that may be written to a leaf: same kind or a safer one."""
    ordinary = [np.dtype(code) for code in "?bhilqpBHILQPefdg"]
    return frozenset(d for d in ordinary if np.can_cast(d, dtype, "same_kind"))


def casts(value: Any, array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether `array`, which is numpy's reading of `value`, may be written as dtype."""
    if hasattr(value, "dtype"):
        return np.can_cast(array.dtype, dtype, "same_kind")
    # Python's own numbers have no width and no sign bit of theirs: they have to fit.
    if array.size == 0:
        return True
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return limits.min <= int(array.min()) and int(array.max()) <= limits.max
    return np.can_cast(array.dtype, dtype, "same_kind")


def is_what(value: Any, array: Array | None = None) -> str:
    """How an error names a value: "is uint8 (84, 84)", "is 0.5 (float64)"."""
    if value is None:
        return "is None"
    if array is None or array.dtype.kind not in "biufc":
        kind = type(value).__name__
        return f"is an {kind}" if kind[0] in "aeiouAEIOU" else f"is a {kind}"
    if array.ndim == 0:
        return f"is {array} ({array.dtype})"
    return f"is {array.dtype} {array.shape}"


def unreadable(name: str, value: Any, error: Exception) -> SpaceMismatch:
    """What is raised for a value that numpy could not make an array of."""
    return SpaceMismatch(f"{name} {is_what(value)} that numpy cannot read: {error}")


@codec_for.register(spaces.Box)
@codec_for.register(spaces.MultiDiscrete)
@codec_for.register(spaces.MultiBinary)
def _array_codec(
    space: spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary,
) -> ArrayCodec:
    return ArrayCodec(space.dtype, space.shape)


@codec_for.register(spaces.Discrete)
def _discrete_codec(space: spaces.Discrete) -> ArrayCodec:
    return ArrayCodec(space.dtype, (), f"{space} needs an integer")


@codec_for.register(spaces.Dict)
def _dict_codec(space: spaces.Dict) -> DictCodec:
    return DictCodec((key, codec_for(part)) for key, part in space.spaces.items())


@codec_for.register(spaces.Tuple)
def _tuple_codec(space: spaces.Tuple[Any]) -> TupleCodec:
    return TupleCodec((key, codec_for(part)) for key, part in enumerate(space.spaces))
