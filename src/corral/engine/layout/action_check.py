"""The check of `check_actions=True`: whether actions are in their space.

Bounds of Box, Discrete, MultiDiscrete and MultiBinary are compared for all slots at
once, leaf by leaf, also inside Dict and Tuple. For other spaces `space.contains` is
called slot by slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from corral.engine.layout.codec import codec_for
from corral.engine.layout.composite import CompositeCodec
from corral.engine.layout.contract import Array, Codec, Mail
from corral.engine.layout.leaves import ArrayCodec
from corral.errors import SpaceMismatch

Slots = Sequence[int] | np.ndarray[Any, np.dtype[np.intp]]
# How an error names it ("['gear'][0]", "" for the action itself), its space and codec;
# the least and the greatest value, where the part is one leaf that has them.
ActionPart = tuple[str, Space[Any], Codec, "tuple[Any, Any] | None"]


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
        self._parts = list(_parts(space, ""))

    def check(self, leaves: Sequence[Array], mailed: Mail, slots: Slots) -> None:
        """Raise unless every action is in its space.

        Args:
            leaves: what `Codec.split` made of a batch of actions.
            mailed: the same.
            slots: the slots of the actions, in their order.
        """
        first = first_mailed = 0
        for where, space, codec, bounds in self._parts:
            own = leaves[first : first + len(codec.leaves)]
            mail = mailed[first_mailed : first_mailed + codec.mailed]
            first, first_mailed = first + len(own), first_mailed + len(mail)
            if bounds is not None:
                _check_bounds(where, space, own[0], bounds, slots)
                continue
            for slot, value in zip(slots, codec.assemble(own, mail), strict=True):
                if not space.contains(value):
                    raise _refusal(slot, where, f"{value!r:.80}", f"the space {space}")


def _parts(space: Space[Any], where: str) -> Iterator[ActionPart]:
    """The parts of a space, in the order of its codec's leaves."""
    codec = codec_for(space)
    if isinstance(codec, CompositeCodec) and isinstance(
        space, (spaces.Dict, spaces.Tuple)
    ):
        for part in codec.parts:
            yield from _parts(space[part.key], f"{where}[{part.key!r}]")
    else:
        yield where, space, codec, _bounds(space, codec)


def _bounds(space: Space[Any], codec: Codec) -> tuple[Any, Any] | None:
    if not isinstance(codec, ArrayCodec):
        return None
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start) + int(space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        start = space.start.astype(np.int64)
        return start, start + space.nvec.astype(np.int64) - 1
    return (0, 1) if isinstance(space, spaces.MultiBinary) else None


def _check_bounds(
    where: str, space: Space[Any], leaf: Array, bounds: tuple[Any, Any], slots: Slots
) -> None:
    """Raise for the first value that is not inside."""
    inside = (leaf >= bounds[0]) & (leaf <= bounds[1])  # not so for a NaN
    if inside.all():
        return
    row, *place = np.argwhere(~inside)[0].tolist()
    low, high = (np.broadcast_to(b, leaf.shape[1:])[tuple(place)] for b in bounds)
    where += "".join(f"[{index}]" for index in place)
    allowed = f"{space} has {low} to {high}"
    raise _refusal(slots[row], where, str(leaf[(row, *place)]), allowed)


def _refusal(slot: int, where: str, value: str, allowed: str) -> SpaceMismatch:
    return SpaceMismatch(
        f"the action of slot {slot} is not in its space: {where or 'it'} is {value}, "
        f"and {allowed}"
    )
