"""Where a worker meets the parent: its bell and queue, the block's words, the mailbox.

The same for every executor; one that runs envs in the caller's thread has no bells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corral.engine.layout.plan import TICKET_MASK, ControlViews
from corral.engine.transport.doorbell import Doorbell
from corral.engine.worker.letters import Letter, Reply


@dataclass(slots=True)
class WorkerEndpoint:
    """What one worker receives and announces."""

    index: int
    control: ControlViews
    fetch: Callable[[], Any]
    """Returns the next message to this worker."""
    post: Callable[[Letter | Reply], None]
    bell: Doorbell | None = None
    parent_bell: Doorbell | None = None
    spin: float = 0.0

    @property
    def ring(self) -> Callable[..., object] | None:
        """Called once per finished slot, or with a count; None without bells."""
        return None if self.parent_bell is None else self.parent_bell.ring

    def informer(self) -> Callable[[], None]:
        """Return what is called when infos were written to columns."""
        informed, index = self.control.informed.data, self.index

        def inform() -> None:
            informed[index] = informed[index] + 1 & TICKET_MASK

        return inform

    def send(self, message: Letter | Reply) -> None:
        """Announce, then post: the parent fetches as many messages as were announced.

        In this order, since a message that is bigger than the mailbox can only be
        posted while the parent reads it.
        """
        posted, index = self.control.posted.data, self.index
        posted[index] = posted[index] + 1 & TICKET_MASK
        self.post(message)
