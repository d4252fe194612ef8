"""Ends of episodes as a few arrays: a third of the time of pickling them one by one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corral.engine.tree import mapped
from corral.errors import Fault
from corral.rollouts import carry as carries
from corral.rollouts.rollout import EpisodeSummary
from corral.rollouts.rollout_buffer import EpisodeEnd
from corral.rollouts.space_rows import SpaceParts


class PackedEnds(NamedTuple):
    """The ends of episodes in some slots.

    Attributes:
        numbers: (ends, 4): row, slot, seed and length.
        returns: (ends,).
        flags: (ends, 3): bootstrapped, with a summary, terminated.
        final_obs: Part by part, (ends, ...).
        carry: One row per end.
        infos: One per end; empty if all are.
        faults: By position.
    """

    numbers: NDArray[np.int64]
    returns: NDArray[np.float64]
    flags: NDArray[np.bool_]
    final_obs: list[Any]
    carry: Any
    infos: tuple[dict[str, Any], ...]
    faults: dict[int, Fault]


def pack_ends(
    ends: dict[tuple[int, int], EpisodeEnd], space: SpaceParts
) -> tuple[PackedEnds, ...]:
    """Pack the ends of a buffer, in one part; in none if there are none."""
    if not ends:
        return ()
    numbers, returns, flags = [], [], []
    infos: list[dict[str, Any]] = []
    for (row, slot), end in ends.items():
        told = end.summary
        if told is None:
            numbers.append((row, slot, 0, 0))
            returns.append(0.0)
            flags.append((end.bootstrapped, False, False))
            infos.append({})
        else:
            numbers.append((row, slot, told.seed, told.length))
            returns.append(told.return_)
            flags.append((end.bootstrapped, True, told.terminated))
            infos.append(told.info)
    every = list(ends.values())
    packed = PackedEnds(
        np.array(numbers, np.int64),
        np.array(returns, np.float64),
        np.array(flags, np.bool_),
        space.stacked_parts([end.final_obs for end in every]),
        carries.joined([end.carry for end in every]),
        tuple(infos) if any(infos) else (),
        {n: end.fault for n, end in enumerate(every) if end.fault is not None},
    )
    return (packed,)


def unpack_ends(
    packed: PackedEnds, first_slot: int
) -> dict[tuple[int, int], EpisodeEnd]:
    """The ends again, by row and slot of the whole pool."""
    ends = {}
    lists = packed.numbers.tolist(), packed.returns.tolist(), packed.flags.tolist()
    carry, infos, faults = packed.carry, packed.infos, packed.faults
    for at, (numbers, return_, flags) in enumerate(zip(*lists, strict=True)):
        row, slot, seed, length = numbers
        bootstrapped, told, terminated = flags
        kept = None
        if carry is not None:
            kept = mapped(lambda leaf, at=at: leaf[at : at + 1], carry)
        final_obs = [part[at] for part in packed.final_obs]
        end = EpisodeEnd(final_obs, kept, bootstrapped)
        number = first_slot + slot
        if told:
            info = infos[at] if infos else {}
            end.summary = EpisodeSummary(
                number, row, seed, return_, length, terminated, info
            )
        if at in faults:
            end.fault = faults[at]
        ends[row, number] = end
    return ends
