"""The random generators of policies: one per slot, seeded with every episode.

The numbers of an episode depend on its seed alone: neither on the batch that its slot
was part of, nor on the draws of other slots.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from corral.engine.worker.seeds import copy_seed

Numbers = NDArray[np.float64]

# Numbers drawn in advance for each row, if many rows draw together.
NUMBERS_AHEAD = 64
DRAW_METHODS: dict[str, Callable[..., Numbers]] = {
    "random": np.random.Generator.random,
    "normal": np.random.Generator.standard_normal,
}


class SlotGenerators:
    """The generators of all slots; each is made at its first draw.

    Args:
        slots: their number.
        copies: the place of each in its group of equal episodes, whose draws differ
            (default: there are no groups).
    """

    def __init__(self, slots: int, copies: Sequence[int] | None = None) -> None:
        self._copies = [0] * slots if copies is None else copies
        self._seeds = list(range(-slots, 0))
        # Slots whose generator has not been seeded for their episode.
        self._stale = set(range(slots))
        self._generators: list[np.random.Generator | None] = [None] * slots
        self._blocks: dict[str, _NumbersAhead] = {}

    def start(self, slots: Iterable[int], seeds: Iterable[int]) -> None:
        """Start episodes with these seeds in these slots.

        An episode without a seed (-1) continues with the numbers of the one before.
        """
        for slot, seed in zip(slots, seeds, strict=True):
            if seed >= 0:
                self._seeds[slot] = copy_seed(seed, self._copies[slot])
                self._stale.add(slot)
                for blocks in self._blocks.values():
                    blocks.forget(slot)

    def of(self, slot: int) -> np.random.Generator:
        """The generator of a slot's episode."""
        generator = self._generators[slot]
        if generator is None:
            generator = np.random.Generator(np.random.PCG64(0))
            self._generators[slot] = generator
        if slot in self._stale:
            # Setting one costs 4 µs, making one 30: as much as four steps of CartPole.
            generator.bit_generator.state = _state(self._seeds[slot])
            self._stale.remove(slot)
        return generator

    def draw(self, kind: str, slots: NDArray[np.intp], count: int) -> Numbers:
        """Draw `count` numbers of a kind for each of these slots."""
        if count > NUMBERS_AHEAD:
            rows = [DRAW_METHODS[kind](self.of(slot), count) for slot in slots.tolist()]
            return np.array(rows).reshape(len(slots), count)
        blocks = self._blocks.get(kind)
        if blocks is None:
            blocks = self._blocks[kind] = _NumbersAhead(self, kind)
        return blocks.take(slots, count)

    def __len__(self) -> int:
        return len(self._seeds)


class RowGenerators:
    """The generators of a Step's rows: the `rng` argument of a policy."""

    __slots__ = ("_all", "_slots")

    def __init__(self, generators: SlotGenerators, slots: NDArray[np.intp]) -> None:
        self._all = generators
        self._slots = slots

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, row: int) -> np.random.Generator:
        return self._all.of(int(self._slots[operator.index(row)]))

    def random(self, count: int = 1) -> Numbers:
        """Draw `(rows, count)` numbers from [0, 1)."""
        return self._all.draw("random", self._slots, count)

    def normal(self, count: int = 1) -> Numbers:
        """Draw `(rows, count)` standard normal numbers."""
        return self._all.draw("normal", self._slots, count)


class _NumbersAhead:
    """Numbers drawn in advance, so that a batch of rows takes them together."""

    def __init__(self, generators: SlotGenerators, kind: str) -> None:
        slots = len(generators)
        self._generators = generators
        self._kind = DRAW_METHODS[kind]
        self._numbers = np.empty((slots, NUMBERS_AHEAD))
        self._flat = self._numbers.reshape(-1)
        self._first = np.arange(slots) * NUMBERS_AHEAD
        # [slots, count], of all numbers: the indices of each slot's next ones.
        self._next = self._first[:, None].copy()
        # What is added to them: one number for all takes twice as long to add.
        self._counts = np.ones_like(self._next)
        # Slots that have none.
        self._empty = set(range(slots))
        # How often all slots can take `count` numbers before the next check.
        self._left = 0

    def forget(self, slot: int) -> None:
        """Drop the numbers of a slot whose episode is over."""
        self._empty.add(slot)
        self._left = 0

    def take(self, slots: NDArray[np.intp], count: int) -> Numbers:
        """The next numbers of these slots, `(slots, count)`."""
        if self._left <= 0 or count != self._next.shape[1]:
            self._check(slots, count)
        self._left -= 1
        following = self._next
        numbers: Numbers
        if len(slots) == len(following):
            numbers = self._flat[following]
            following += self._counts
        else:
            numbers = self._flat[following[slots]]
            following[slots] += count
        return numbers

    def _check(self, slots: NDArray[np.intp], count: int) -> None:
        """Draw numbers for those of these slots that have too few."""
        if count != self._next.shape[1]:
            self._next = self._next[:, :1] + np.arange(count)
            self._counts = np.full_like(self._next, count)
        # As numbers: usually one slot has too few, and arrays take longer.
        at = (self._next[:, 0] - self._first).tolist()
        for slot in self._empty:
            at[slot] = NUMBERS_AHEAD
        for slot in slots.tolist():
            if at[slot] + count > NUMBERS_AHEAD:
                self._kind(self._generators.of(slot), out=self._numbers[slot])
                self._next[slot] -= self._next.item(slot, 0) - slot * NUMBERS_AHEAD
                self._empty.discard(slot)
                at[slot] = 0
        self._left = (NUMBERS_AHEAD - max(at)) // count


def _state(seed: int) -> dict[str, object]:
    """A state of PCG64 for a seed of any size."""
    digest = blake2b(f"{seed:x}".encode(), digest_size=32, person=b"corral policy")
    numbers = digest.digest()
    return {
        "bit_generator": "PCG64",
        "state": {
            "state": int.from_bytes(numbers[:16], "little"),
            "inc": int.from_bytes(numbers[16:], "little") | 1,
        },
        "has_uint32": 0,
        "uinteger": 0,
    }
