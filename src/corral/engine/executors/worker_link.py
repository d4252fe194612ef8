"""What the parent shares with one worker: a queue, a bell and a mailbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from corral.engine.layout.plan import WORKER_ENDED, ControlViews
from corral.engine.transport.doorbell import Doorbell
from corral.errors import Fault


@dataclass(eq=False)
class WorkerLink:
    """The parent's side of one worker; a replacement gets a link of its own.

    Attributes:
        process: Its process, or its thread.
        mark: The mark of processes that its envs start; see
            `transport.child_processes`.
        sent: Commands that it was sent, modulo 2**32.
        question: The number of its latest question, until it is answered; answers to
            others are dropped.
        untouched: The command that it has not taken yet, and since when.
        fault: Why it ended, if the executor did not end it.
    """

    worker: int
    control: ControlViews
    bell: Doorbell
    mailbox: Any
    process: Any = None
    mark: str = ""
    sent: int = 0
    question: int = 0
    untouched: tuple[int, float] = (-1, 0.0)
    fault: Fault | None = None

    def __post_init__(self) -> None:
        self.queue = self.control.queue[self.worker].data
        self.last = len(self.queue) - 1  # the length is a power of two
        self.consumed = self.control.consumed[self.worker].data
        self.fetched = int(self.control.posted[self.worker])

    @property
    def ended_in_order(self) -> bool:
        """Whether the worker has ended its children, the last that it does."""
        return bool(self.control.stop[self.worker, 0] == WORKER_ENDED)

    def close(self) -> None:
        """Close the mailbox and the bell; idempotent."""
        self.mailbox.close()
        self.bell.close()
