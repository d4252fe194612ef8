"""Actions on their way into the block, and the last ones still in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.codec import Codec
from corral.engine.layout.plan import DataViews
from corral.engine.worker.commands import WIDE_ACTIONS

# Where an action is: in the space's own dtypes, in wide ones, not in the block.
PLAIN, WIDENED, ELSEWHERE = range(3)


class Actions:
    """Writes batches of actions, in dtypes that lose nothing."""

    def __init__(self, codec: Codec, views: DataViews) -> None:
        self.codec = codec
        self._views = views
        self._dtypes = [leaf.dtype for leaf in codec.leaves]
        self._mask = views.action_mask
        # [rows, slots], from the first action on that is not PLAIN.
        self._places: NDArray[np.uint8] | None = None

    @property
    def rows(self) -> int:
        """How many actions of each slot the block keeps."""
        return self._mask + 1

    def write(
        self,
        leaves: list[NDArray[Any]],
        tickets: int | NDArray[np.int64],
        slots: NDArray[np.intp] | None = None,
    ) -> int:
        """Write one row for all slots, or a row of its own for each of these slots.

        Returns:
            WIDE_ACTIONS if they went to the wide rows, else 0.
        """
        at: Any = tickets & self._mask
        if slots is not None:
            at = at, slots
        arrays, wide = self._views.action, 0
        # Not by identity: a space that came from a worker samples in copies of dtypes.
        if len(leaves) == 1 and leaves[0].dtype == self._dtypes[0]:
            arrays[0][at] = leaves[0]
        else:
            pairs = zip(leaves, self._dtypes, strict=True)
            if not all(np.can_cast(leaf.dtype, dtype, "safe") for leaf, dtype in pairs):
                arrays, wide = self._views.wide_action, WIDE_ACTIONS
                self._note_places()
            for array, leaf in zip(arrays, leaves, strict=True):
                array[at] = leaf
        if self._places is not None:
            self._places[at] = wide and WIDENED
        return wide

    def skip(self, tickets: NDArray[np.int64], slots: NDArray[np.intp]) -> None:
        """Mark actions that are sent by mail and are not in the block."""
        self._note_places()[tickets & self._mask, slots] = ELSEWHERE

    def _note_places(self) -> NDArray[np.uint8]:
        if self._places is None:
            slots = self._views.record.shape[1]
            self._places = np.zeros((self.rows, slots), np.uint8)
        return self._places

    def last(self, slot: int, ticket: int, count: int) -> tuple[Any, ...]:
        """The slot's last actions up to a ticket: so many, or those in the block."""
        count = min(count, self.rows)
        if count < 1 or self.codec.mailed:
            return ()
        rows = np.arange(ticket - count + 1, ticket + 1) & self._mask
        if self._places is None:
            return tuple(self._read(self._views.action, rows, slot))
        places = self._places[rows, slot]
        missing = np.flatnonzero(places == ELSEWHERE)
        if len(missing):
            rows, places = rows[missing[-1] + 1 :], places[missing[-1] + 1 :]
        found: dict[int, Any] = {}
        for place, arrays in enumerate((self._views.action, self._views.wide_action)):
            there = rows[places == place]
            actions = self._read(arrays, there, slot)
            found |= zip(there.tolist(), actions, strict=True)
        return tuple(found[row] for row in rows.tolist())

    def some_unfit(self, slot: int, ticket: int, count: int) -> bool:
        """Whether one of these actions did not fit the space, and was sent as it is."""
        if self._places is None:
            return False
        first = ticket - min(count, self.rows) + 1
        rows = np.arange(first, ticket + 1) & self._mask
        return bool((self._places[rows, slot] == ELSEWHERE).any())

    def _read(
        self, arrays: list[NDArray[Any]], rows: NDArray[np.int64], slot: int
    ) -> Iterable[Any]:
        """The actions in these rows; the whole of each leaf is picked at once."""
        picked = [array[rows, slot][np.newaxis] for array in arrays]
        walk = self.codec.walker(picked)
        if walk is not None:
            return walk(0)
        decode = self.codec.decoder(picked)  # a space without leaves
        return [decode(0, index, None) for index in range(len(rows))]
