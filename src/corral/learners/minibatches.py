"""Which rows are learnt from together.

Without a memory, any rows, shuffled. With one, whole columns of a rollout, each cut
into sequences where an episode starts and packed as `nets.memory` takes them: since no
sequence crosses a start, nothing is remembered from one episode to another.

Rows are numbered as `[rows, slots]` arrays are laid out; filler has no place in any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.learners.torch_import import torch

Flags = NDArray[np.bool_]
Numbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Packing:
    """Sequences in packed order."""

    index: Numbers
    """Which rows, in that order."""
    batch_sizes: Numbers
    """How many sequences have a first row, a second row, ..."""
    slots: Numbers
    """By sequence: its slot."""
    fresh: Flags
    """By sequence: whether it begins with nothing remembered."""


def even_parts(count: int, size: int) -> list[slice]:
    """As few parts as are needed for none to be larger than `size`, of even sizes."""
    parts = max(1, -(-count // size))
    bounds = [count * part // parts for part in range(parts + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]


def shuffled(values: Numbers, generator: Any) -> Numbers:
    """The same in another order."""
    order: Numbers = torch.randperm(len(values), generator=generator).numpy()
    return values[order]


def shuffled_slots(
    started: Flags, valid: Flags, size: int, generator: Any
) -> Iterator[Packing]:
    """Packings of some slots each, about `size` rows; every slot is in one of them."""
    rows, count = started.shape
    slots = shuffled(np.arange(count), generator)
    for part in even_parts(count, max(1, size // rows)):
        packing = packed(started, valid, slots[part])
        if len(packing.index):
            yield packing


def packed(started: Flags, valid: Flags, slots: Numbers) -> Packing:
    """The sequences of these slots."""
    begins = started[:, slots]
    known = ~begins[0]  # goes on from what was remembered before the rollout
    begins[0] = True
    kept = valid[:, slots]
    # Sequences are numbered slot by slot; `place` is a row's place in its sequence.
    number: Numbers = np.cumsum(begins.T.ravel()).reshape(begins.T.shape) - 1
    first = number[:, 0]
    of_slot = np.repeat(np.arange(len(slots)), begins.sum(0))
    numbers = number[kept.T]
    lengths = np.bincount(numbers, minlength=len(of_slot))
    place = np.arange(len(numbers)) - np.repeat(lengths.cumsum() - lengths, lengths)
    longest_first = np.argsort(-lengths, kind="stable")
    rank = np.argsort(longest_first)
    column, row = np.nonzero(kept.T)
    order = np.lexsort((rank[numbers], place))
    fresh = np.ones(len(of_slot), np.bool_)
    fresh[first] = ~known
    present = longest_first[lengths[longest_first] > 0]
    return Packing(
        index=(row * started.shape[1] + slots[column])[order],
        batch_sizes=np.bincount(place),
        slots=slots[of_slot[present]],
        fresh=fresh[present],
    )
