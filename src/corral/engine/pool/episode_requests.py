"""Seeds, options and tasks that the caller gave for each slot's episode.

They are not in the block, and a worker that is killed cannot report them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.plan import TICKET_MASK


class EpisodeRequests:
    """Options, tasks and big seeds by slot, and the command each of them went with."""

    def __init__(self) -> None:
        self._requests: dict[int, tuple[int, dict[str, Any]]] = {}
        """The ticket that the slot's latest such episode began with, and about it."""
        self.assigned: dict[int, tuple[int, Any]] = {}
        """Tasks that no episode has begun with, and the last ticket before each."""

    def reset(
        self,
        slots: NDArray[np.intp],
        tickets: NDArray[np.int64],
        messages: dict[int, dict[str, Any]],
    ) -> None:
        """These slots were sent a reset."""
        if not messages and not self._requests:
            return
        for slot, ticket in zip(slots.tolist(), tickets.tolist(), strict=True):
            self._requests.pop(slot, None)
            if slot in messages:
                self._requests[slot] = ticket & TICKET_MASK, messages[slot]

    def assign(self, slot: int, ticket: int, task: Any) -> None:
        """The slot's first episode that begins after this ticket has a task."""
        self.assigned[slot] = ticket, task

    def results_taken(
        self,
        slots: NDArray[np.intp],
        tickets: NDArray[np.int64],
        started: NDArray[np.bool_],
    ) -> None:
        """These slots' results were received."""
        for slot, ticket in zip(slots[started].tolist(), tickets[started], strict=True):
            if slot in self.assigned and ticket > self.assigned[slot][0]:
                began = int(ticket) & TICKET_MASK
                self._requests[slot] = began, self.about(slot, began)
                del self.assigned[slot]

    def about(self, slot: int, began: int) -> dict[str, Any]:
        """What the caller gave for the slot's episode that began with this ticket."""
        ticket, said = self._requests.get(slot, (None, {}))
        said = dict(said) if ticket == began else {}
        after, task = self.assigned.get(slot, (began, None))
        if began - after & TICKET_MASK in range(1, 1 << 31):
            said.setdefault("task", task)
        return said
