"""What the parent shares with one worker: a queue, a bell and a mailbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from corral.engine.layout.plan import TICKET_MASK, WORKER_ENDED, ControlViews
from corral.engine.transport.doorbell import Doorbell
from corral.errors import Fault


@dataclass(eq=False)
class WorkerLink:
    """The parent's side of one worker; a replacement gets a link of its own."""

    worker: int
    control: ControlViews
    bell: Doorbell
    mailbox: Any
    process: Any = None
    """Its process, or its thread."""
    mark: str = ""
    """The mark of processes that its envs start; see `transport.child_processes`."""
    sent: int = 0
    """Commands that it was sent, modulo 2**32."""
    unwanted: int = 0
    """Answers that were given up and will be dropped."""
    untouched: tuple[int, float] = (-1, 0.0)
    """The command that it has not taken yet, and since when."""
    fault: Fault | None = None
    """Why it ended, if the executor did not end it."""

    def __post_init__(self) -> None:
        self.queue = self.control.queue[self.worker].data
        self._last = len(self.queue) - 1  # the length is a power of two
        self.consumed = self.control.consumed[self.worker].data
        self.fetched = int(self.control.posted[self.worker])

    def has_room(self, count: int = 1) -> bool:
        """Whether the queue has room; its last entry is left to `send_all`."""
        pending: int = self.sent - self.consumed[0] & TICKET_MASK
        return pending + count <= self._last

    def announce(self, entry: int) -> None:
        """Queue a command; the worker starts with it now if it spins."""
        self.queue[self.sent & self._last] = entry
        self.sent = self.sent + 1 & TICKET_MASK
        self.bell.announce()

    @property
    def ended_in_order(self) -> bool:
        """Whether the worker has ended its children, the last that it does."""
        return bool(self.control.stop[self.worker, 0] == WORKER_ENDED)

    def close(self) -> None:
        """Close the mailbox and the bell; idempotent."""
        self.mailbox.close()
        self.bell.close()
