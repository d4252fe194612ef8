"""The check of `check_actions=True`: whether actions are in their space.

Bounds of Box, Discrete, MultiDiscrete and MultiBinary are compared for all slots at
once, leaf by leaf, also inside Dict and Tuple. For other spaces `space.contains` is
called slot by slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from gymnasium import Space, spaces

from corral.engine.layout.codec import codec_for
from corral.engine.layout.composite import CompositeCodec
from corral.engine.layout.contract import Array, Codec
from corral.engine.layout.leaves import ArrayCodec
from corral.errors import SpaceMismatch

Slots = Sequence[int] | np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True, slots=True)
class _ActionPart:
    """One part of an action that has a space of its own."""

    where: str
    """How an error names it: "" for the action itself, "['gear'][0]" for a part."""
    space: Space[Any]
    codec: Codec
    bounds: tuple[Any, Any] | None
    """The least and the greatest value, where the part is one leaf that has them."""
    leaves: slice
    mailed: slice


class ActionCheck:
    """The bounds of every part of an action.

    >>> check = ActionCheck(spaces.Dict({"gear": spaces.Discrete(3, start=1)}))
    >>> check.check([np.array([1, 3])], [], [0, 1])
    >>> check.check([np.array([1, 4])], [], [6, 8])
    Traceback (most recent call last):
    corral.errors.SpaceMismatch: the action of slot 8 is not in its space: ['gear'] is \
4, and Discrete(3, start=1) has 1 to 3

    Args:
        space: of one action.
    """

    def __init__(self, space: Space[Any]) -> None:
        self._parts = list(_parts(space, codec_for(space), "", 0, 0))

    def check(
        self, leaves: Sequence[Array], mailed: Sequence[tuple[Any, ...]], slots: Slots
    ) -> None:
        """Raise unless every action is in its space.

        Args:
            leaves: what `Codec.split` made of a batch of actions.
            mailed: the same.
            slots: the slots of the actions, in their order.
        """
        for part in self._parts:
            if part.bounds is None:
                self._ask(part, leaves[part.leaves], mailed[part.mailed], slots)
                continue
            leaf, (low, high) = leaves[part.leaves.start], part.bounds
            inside = (leaf >= low) & (leaf <= high)  # not so for a NaN
            if not inside.all():
                _refuse(part, leaf, inside, slots)

    def _ask(
        self,
        part: _ActionPart,
        leaves: Sequence[Array],
        mailed: Sequence[tuple[Any, ...]],
        slots: Slots,
    ) -> None:
        for slot, value in zip(slots, part.codec.assemble(leaves, mailed), strict=True):
            if not part.space.contains(value):
                raise SpaceMismatch(
                    f"the action of slot {slot} is not in its space: "
                    f"{part.where or 'it'} is {value!r:.80}, and the space {part.space}"
                )


def _parts(
    space: Space[Any], codec: Codec, where: str, leaf: int, mail: int
) -> Iterator[_ActionPart]:
    """The parts of a space, in the order of its codec's leaves."""
    if isinstance(codec, CompositeCodec) and isinstance(
        space, (spaces.Dict, spaces.Tuple)
    ):
        for part in codec.parts:
            inside = f"{where}[{part.key!r}]"
            start, mail_start = leaf + part.leaves.start, mail + part.mail.start
            yield from _parts(space[part.key], part.codec, inside, start, mail_start)
        return
    bounds = _bounds(space) if isinstance(codec, ArrayCodec) else None
    own = slice(leaf, leaf + len(codec.leaves))
    yield _ActionPart(
        where, space, codec, bounds, own, slice(mail, mail + codec.mailed)
    )


def _bounds(space: Space[Any]) -> tuple[Any, Any] | None:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start) + int(space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        start = space.start.astype(np.int64)
        return start, start + space.nvec.astype(np.int64) - 1
    return (0, 1) if isinstance(space, spaces.MultiBinary) else None


def _refuse(part: _ActionPart, leaf: Array, inside: Array, slots: Slots) -> NoReturn:
    """Name the first value that is not inside, and the allowed range."""
    row, *place = np.argwhere(~inside)[0].tolist()
    at = "".join(f"[{index}]" for index in place)
    assert part.bounds is not None
    low, high = (
        np.broadcast_to(bound, leaf.shape[1:])[tuple(place)] for bound in part.bounds
    )
    value = leaf[(row, *place)]
    raise SpaceMismatch(
        f"the action of slot {slots[row]} is not in its space: "
        f"{(part.where + at) or 'it'} is {value}, and {part.space} has {low} to {high}"
    )
