"""The rows of a rollout as tensors, and which of them are learnt from together.

Without a memory, any rows, shuffled. With one, whole columns of a rollout, each cut
into sequences where an episode starts and packed as `nets.memory` takes them: since no
sequence crosses a start, nothing is remembered from one episode to another.

Rows are numbered as `[rows, slots]` arrays are laid out; filler has no place in any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.tree import mapped
from corral.learners.tensors import to_tensor
from corral.learners.torch_import import torch

Flags = NDArray[np.bool_]
Numbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RolloutTensors:
    """Tensors of (rows, ...).

    Attributes:
        leaves: Of the observations.
        log_prob: Of the chosen actions, by the policy that collected.
        value: Of the observations, by the policy that collected.
    """

    leaves: list[Any]
    chosen: Any
    log_prob: Any = None
    value: Any = None
    advantage: Any = None
    returns: Any = None

    def at(self, index: NDArray[np.intp]) -> RolloutTensors:
        """Return some rows, copied."""
        places = torch.from_numpy(index).to(self.chosen.device)
        return self._mapped(lambda tensor: tensor.index_select(0, places))

    def part(self, part: slice) -> RolloutTensors:
        """Return consecutive rows, as views."""
        return self._mapped(lambda tensor: tensor[part])

    def _mapped(self, function: Callable[[Any], Any]) -> RolloutTensors:
        rest = self.chosen, self.log_prob, self.value, self.advantage, self.returns
        return RolloutTensors(
            [function(leaf) for leaf in self.leaves],
            *[None if one is None else function(one) for one in rest],
        )

    def quantities(self) -> list[tuple[str, Any]]:
        """Return every quantity with its name for users, causes first."""
        return [
            *(("an observation", leaf) for leaf in self.leaves),
            ("an action", self.chosen),
            ("the log-probability of an action that was taken", self.log_prob),
            ("the value of an observation, as collected,", self.value),
            ("an advantage, made of rewards and values,", self.advantage),
            ("a return", self.returns),
        ]


@dataclass(frozen=True, slots=True)
class TensorBatch:
    """A minibatch; with a memory, its rows are packed sequences.

    Attributes:
        carry: The recurrent state at the beginning of each sequence.
    """

    rows: RolloutTensors
    batch_sizes: Any = None
    carry: Any = None


@dataclass(frozen=True, slots=True)
class Packing:
    """Sequences in packed order.

    Attributes:
        index: Which rows, in that order.
        batch_sizes: How many sequences have a first row, a second row, ...
        slots: By sequence: its slot.
        fresh: By sequence: whether it begins with nothing remembered.
    """

    index: Numbers
    batch_sizes: Numbers
    slots: Numbers
    fresh: Flags


def minibatches(
    rows: RolloutTensors,
    started: Flags,
    valid: Flags,
    first_carry: Any,
    size: int,
    generator: Any,
) -> Iterator[TensorBatch]:
    """Every valid row once, in a new random order.

    Args:
        rows: of all rows and slots.
        started: `[rows, slots]`: where episodes start.
        valid: `[rows, slots]`: which rows to learn from.
        first_carry: the carry before row 0; None for a policy without a memory.
        size: rows of a minibatch.
        generator: torch's, for the order.
    """
    if first_carry is None:
        index = shuffled(np.flatnonzero(valid), generator)
        mixed = rows.at(index)  # once for all: minibatches are views of it
        for part in even_parts(len(index), size):
            if part.stop > part.start:
                yield TensorBatch(mixed.part(part))
        return
    for packing in shuffled_slots(started, valid, size, generator):

        def begun(carry: Any, packing: Packing = packing) -> Any:
            state = np.asarray(carry)[packing.slots]
            state[packing.fresh] = 0.0
            return to_tensor(state, rows.chosen.device)

        batch_sizes = torch.from_numpy(packing.batch_sizes)
        carry = mapped(begun, first_carry)
        yield TensorBatch(rows.at(packing.index), batch_sizes, carry)


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
    known = ~begins[0]  # continues what was remembered before the rollout
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
