"""The desk: where the workers take the items of `run_episodes` from.

    next       3             the item that a free slot takes
    running    0 2 1 -       the item of each slot
    faults     0 1 0 0 0     how many faults each item has had
    stop       0             1 after an error, or Ctrl-C

It is shared memory. A worker takes items under a lock, which ends with its process, so
no slot waits while an item is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from corral.engine.transport.segment import (
    Arrays,
    Segment,
    SegmentAddress,
    open_segment,
    segment_lock,
)
from corral.rollouts.episode_run import EpisodeItem

NEXT, RUNNING, FAULTS, STOP = "next", "running", "faults", "stop"
NONE = -1


class Desk:
    """The caller's side.

    Args:
        slots: number of slots of the pool.
        items: number of items of the run.
    """

    def __init__(self, slots: int, items: int) -> None:
        self._segment = Segment(_shapes(slots, items))
        self._arrays = self._segment.lend()
        self._arrays[RUNNING][:] = NONE
        self.address = self._segment.address

    def running(self, slots: range) -> dict[int, int]:
        """The numbers of the items that run in these slots, by slot."""
        found = self._arrays[RUNNING]
        return {slot: int(found[slot]) for slot in slots if found[slot] != NONE}

    def faults(self, number: int) -> int:
        """Number of an item's own faults, as the last worker that ran it knew."""
        return int(self._arrays[FAULTS][number])

    def stop(self) -> None:
        """End the run in all workers, in the middle of episodes."""
        self._arrays[STOP][0] = 1

    def close(self) -> None:
        """Let go of the memory."""
        self._segment.close()


def _shapes(slots: int, items: int) -> dict[str, Any]:
    lengths = {NEXT: 1, RUNNING: slots, FAULTS: items, STOP: 1}
    return {name: ((length,), np.int64) for name, length in lengths.items()}


class DeskItems:
    """A worker's side: the items that all workers take from.

    Args:
        items: all of them.
        desk: the shared memory.
        locked: makes a context manager that excludes the other workers.
        slots: the slots of this worker.
    """

    def __init__(
        self,
        items: Sequence[EpisodeItem],
        desk: Arrays,
        locked: Callable[[], Any],
        slots: range,
    ) -> None:
        self._items, self._locked = items, locked
        self._next, self._faults, self._stop = desk[NEXT], desk[FAULTS], desk[STOP]
        self._running = desk[RUNNING][slots.start : slots.stop]
        self._again: deque[EpisodeItem] = deque()

    def take(self, slots: Sequence[int]) -> list[EpisodeItem]:
        """The next items."""
        again = min(len(slots), len(self._again))
        taken = [self._again.popleft() for _ in range(again)]
        missing = len(slots) - again
        if missing and not self.stopped:
            with self._locked():
                first = int(self._next[0])
                last = min(first + missing, len(self._items))
                self._next[0] = last
            taken += self._items[first:last]
        for slot, item in zip(slots, taken, strict=False):
            self._running[slot] = item.number
        return taken

    def put_back(self, item: EpisodeItem) -> None:
        """Run an item again, in this worker."""
        self._again.append(item)

    def done(self, slot: int, item: EpisodeItem) -> None:
        """The item of a slot is done, or has a fault more."""
        self._faults[item.number] = item.own_faults
        self._running[slot] = NONE

    @property
    def stopped(self) -> bool:
        """Whether an error in a worker has ended the run."""
        return bool(self._stop[0])

    def stop(self) -> None:
        """End the run in all workers."""
        self._stop[0] = 1


@contextmanager
def desk_items(
    items: Sequence[EpisodeItem], address: SegmentAddress | None, slots: range
) -> Iterator[DeskItems]:
    """The items of a worker; without shared memory, `items` are for it alone."""
    if address is None:
        last = max((item.number for item in items), default=-1)
        shapes = _shapes(slots.stop, last + 1)
        desk = {name: np.zeros(*shape) for name, shape in shapes.items()}
        yield DeskItems(items, desk, nullcontext, slots)
        return
    with segment_lock(address) as locked:
        yield DeskItems(items, open_segment(address), locked, slots)
