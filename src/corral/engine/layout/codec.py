"""A codec stores the values of one space in the fixed-size leaves of a block.

    obs = {"rgb": ..., "speed": ..., "order": "go left"}
             |           |              |
           leaf 0      leaf 1        mailed 0      encode ->    <- decode
             |           |              |
    {"rgb": [slots, ...], "speed": [slots], "order": (slots values)}    <- assemble

Box, Discrete, MultiDiscrete and MultiBinary are one leaf each; Dict and Tuple join the
leaves of their parts, depth first. Every other space (Text, Sequence, Graph, OneOf, and
custom ones without a registered codec) is *mailed*: the encoder returns its values, and
the worker or the pool pickles them.

`contract` says which casts pass, and which raise SpaceMismatch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.core import EnvSpec
from corral.engine.layout.composite import DictCodec, TupleCodec
from corral.engine.layout.contract import Array, Codec, Decode, Encode, Mail, Split
from corral.engine.layout.leaves import ArrayCodec, MailedCodec, check_count

__all__ = ["Codec", "Codecs", "StandIn", "codec_for", "register_codec"]


@singledispatch
def codec_for(space: Any) -> Codec:
    """The codec of a space; a space without a known fixed size is mailed."""
    return MailedCodec()


def register_codec(space_type: type, factory: Callable[[Any], Codec]) -> None:
    """Use `factory(space)` for spaces of this type, also inside Dict and Tuple.

    Call it before the pool is made, in the pool's process; workers are sent the codec.
    Most custom spaces only need a plain space that stands in for them:

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


@dataclass(slots=True)
class Codecs:
    """The two codecs of a pool."""

    obs: Codec
    action: Codec

    @classmethod
    def of(cls, spec: EnvSpec) -> Codecs:
        """The codecs of what an env says about itself."""
        return cls(codec_for(spec.observation_space), codec_for(spec.action_space))


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
        encode, pack = self.inner.encoder(arrays, name), self.pack
        return lambda row, slot, value: encode(row, slot, pack(value))

    def decoder(self, arrays: Sequence[Array]) -> Decode:
        decode, unpack = self.inner.decoder(arrays), self.unpack
        return lambda row, slot, mailed: unpack(decode(row, slot, mailed))

    def assemble(self, leaf_batches: Sequence[Array], mailed: Mail) -> tuple[Any, ...]:
        """See Codec.assemble; the only one that copies, value by value."""
        decode = self.decoder([batch[np.newaxis] for batch in leaf_batches])
        columns: list[Any] = [*leaf_batches, *mailed, ()]
        slots = range(len(columns[0]))
        return tuple(decode(0, slot, [part[slot] for part in mailed]) for slot in slots)

    def split(self, batch: Any, count: int, name: str = "actions") -> Split:
        check_count(batch, count, name)
        return self.inner.split([self.pack(value) for value in batch], count, name)


for _kind in (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary):
    register_codec(_kind, lambda space: ArrayCodec(space.dtype, space.shape))
register_codec(
    spaces.Discrete,
    lambda space: ArrayCodec(space.dtype, (), f"{space} needs an integer"),
)
register_codec(
    spaces.Dict,
    lambda space: DictCodec((k, codec_for(part)) for k, part in space.items()),
)
register_codec(
    spaces.Tuple,
    lambda space: TupleCodec((k, codec_for(part)) for k, part in enumerate(space)),
)
