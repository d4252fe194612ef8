"""Tickets: how many commands each slot was sent, counted alike by pool and worker.

The ticket of slot i is `base + offsets[i]`: a command to all slots moves the base
alone. Its lowest bit is the row of the block that the command's results go to.
"""

from __future__ import annotations

import numpy as np

from corral.engine.layout.plan import TICKET_MASK


class Tickets:
    """The tickets of `count` slots: of a whole pool, or of one worker's shard.

    They grow without bound here; in the block they are words of 32 bits.
    """

    __slots__ = ("_words", "base", "even", "offsets")

    def __init__(self, count: int) -> None:
        self.base = 0
        self.offsets = np.zeros(count, np.int64)
        self.even = True
        """Whether all offsets are known to be 0; if not, `level` looks."""
        self._words = self.offsets.data
        """The same memory: one item costs a third of what numpy takes for it."""

    def level(self) -> bool:
        """Whether all slots have the same ticket, which is then the base."""
        if not self.even and (self.offsets == self._words[0]).all():
            self.base += self._words[0]
            self.offsets[:] = 0
            self.even = True
        return self.even

    def advance(self, slot: int) -> int:
        """Count a command to one slot; returns its ticket."""
        self._words[slot] += 1
        self.even = False
        return self.base + self._words[slot]

    def of(self, slot: int) -> int:
        """The ticket of a slot's last command."""
        return self.base + self._words[slot]

    def word(self, slot: int) -> int:
        """The same as a word of the block."""
        return self.base + self._words[slot] & TICKET_MASK

    def take_over(self, words: list[int]) -> None:
        """Continue from the tickets of a worker that ended."""
        self.base = 0
        self.offsets[:] = words
        self.even = False
