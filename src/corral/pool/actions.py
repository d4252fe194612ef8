"""Actions on their way into the block, and the last ones still in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.layout.codec import Codec
from corral.layout.plan import ACTION_ROWS, DataViews
from corral.workers.commands import WIDE


class Actions:
    """Writes batches of actions, in dtypes that lose nothing."""

    def __init__(self, codec: Codec, views: DataViews) -> None:
        self.codec = codec
        self._views = views
        self._dtypes = [leaf.dtype for leaf in codec.leaves]
        self._wide_used = False

    def write_all(self, leaves: list[NDArray[Any]], ticket: int) -> int:
        """One row for all slots; returns WIDE if they went to the wide rows."""
        row = ticket % ACTION_ROWS
        if len(leaves) == 1 and leaves[0].dtype is self._dtypes[0]:
            self._views.action[0][row] = leaves[0]  # as a rule
            return 0
        arrays, wide = self._fields_for(leaves)
        for array, leaf in zip(arrays, leaves, strict=True):
            array[row] = leaf
        return wide

    def write(
        self,
        leaves: list[NDArray[Any]],
        tickets: NDArray[np.int64],
        slots: NDArray[np.intp],
    ) -> int:
        """A row of its own for each slot."""
        arrays, wide = self._fields_for(leaves)
        rows = tickets % ACTION_ROWS
        for array, leaf in zip(arrays, leaves, strict=True):
            array[rows, slots] = leaf
        return wide

    def _fields_for(self, leaves: list[NDArray[Any]]) -> tuple[list[NDArray[Any]], int]:
        """Where these actions fit: the space's own dtypes, or wide ones."""
        for dtype, leaf in zip(self._dtypes, leaves, strict=True):
            if leaf.dtype is not dtype and not np.can_cast(leaf.dtype, dtype, "safe"):
                self._wide_used = True
                return self._views.wide_action, WIDE
        return self._views.action, 0

    def last(self, slot: int, ticket: int) -> tuple[Any, ...]:
        """The actions of the slot's running episode that are still in the block."""
        if self.codec.mailed:
            return ()
        length = int(self._views.record["episode_length"][1 - (ticket & 1), slot]) + 1
        # A caller who once gave wide actions gives them always, as a rule.
        arrays = self._views.wide_action if self._wide_used else self._views.action
        decode = self.codec.decoder(arrays)
        count = min(length, ACTION_ROWS, ticket)
        tickets = range(ticket - count + 1, ticket + 1)
        return tuple(decode(t % ACTION_ROWS, slot, None) for t in tickets)
