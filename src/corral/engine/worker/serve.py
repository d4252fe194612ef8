"""The loop of a worker: wait for the bell, obey, ring.

while not told to close:
    bell.wait -> queue entry -> worker.handle -> (per slot: done, ring) -> flush
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corral.engine.layout.plan import (
    BUSY,
    DOING,
    MARK,
    STEPPING,
    TICKET_MASK,
    ControlViews,
)
from corral.engine.transport.doorbell import Doorbell
from corral.engine.worker.letters import Letter, Reply
from corral.engine.worker.shard_outputs import Outlet
from corral.engine.worker.worker import Worker

PATIENCE = 0.25
"""Seconds between looks at the stop word; the lifeline wakes us anyway."""


@dataclass(slots=True)
class Desk:
    """Where a worker sits: its bell, its queue and the parent's bell."""

    index: int
    control: ControlViews
    bell: Doorbell
    parent_bell: Doorbell
    spin: float

    def outlet(self, slots: range, post: Callable[[Any], None]) -> Outlet:
        """What the shard announces its results to."""
        informed = self.control.informed.data
        index = self.index

        def inform() -> None:
            informed[index] = informed[index] + 1 & TICKET_MASK

        return Outlet(
            done=self.control.done.data[slots.start : slots.stop],
            ring=self.parent_bell.ring,
            inform=inform,
            post=self.poster(post),
            times=self.control.times[slots.start : slots.stop],
            vitals=self.control.vitals[index],
            episode=self.control.episode[slots.start : slots.stop],
        )

    def poster(self, post: Callable[[Any], None]) -> Callable[[Letter | Reply], None]:
        """Announce, then post: the parent fetches as many messages as it was told of.

        In this order, since a message that is bigger than the mailbox can only be
        posted while the parent reads it.
        """
        posted = self.control.posted.data
        index = self.index

        def announce_and_post(message: Letter | Reply) -> None:
            posted[index] = posted[index] + 1 & TICKET_MASK
            post(message)

        return announce_and_post


def serve(worker: Worker, desk: Desk) -> bool:
    """Obey until told to close; False when the parent went away instead."""
    queue = desk.control.queue[desk.index].data
    consumed = desk.control.consumed[desk.index].data
    stop = desk.control.stop[desk.index].data
    vitals = desk.control.vitals[desk.index].data
    capacity = len(queue)
    seen = 0
    while not worker.closing:
        if not desk.bell.wait(seen + 1, PATIENCE, desk.spin):
            if stop[0]:
                return False
            continue
        vitals[MARK] = began = time.perf_counter()
        vitals[DOING] = STEPPING
        count = desk.bell.count
        while seen != count:
            entry = queue[seen % capacity]
            seen = seen + 1 & TICKET_MASK
            worker.handle(entry)
            worker.guard()
            consumed[0] = seen
        desk.parent_bell.flush()
        vitals[BUSY] += time.perf_counter() - began
        vitals[MARK] = 0.0
    return True
