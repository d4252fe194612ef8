"""The loop of a worker: wait for the bell, obey, ring.

while not closing:
    bell.wait -> queue entry -> worker.handle -> (per slot: done, ring) -> flush
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from corral.engine.layout.plan import (
    BUSY_SECONDS,
    BUSY_SINCE,
    CURRENT_COMMAND,
    STEPPING,
    TICKET_MASK,
    ControlViews,
)
from corral.engine.transport.doorbell import Doorbell
from corral.engine.worker.letters import Letter, Reply
from corral.engine.worker.shard_outputs import ShardOutputs
from corral.engine.worker.worker import Worker

STOP_CHECK_SECONDS = 0.25
"""Seconds between looks at the stop word; the lifeline wakes us anyway."""


@dataclass(slots=True)
class WorkerEndpoint:
    """Where a worker sits: its bell, its queue and the parent's bell."""

    index: int
    control: ControlViews
    bell: Doorbell
    parent_bell: Doorbell
    spin: float

    def shard_outputs(self, slots: range, post: Callable[[Any], None]) -> ShardOutputs:
        """What the shard announces its results to."""
        informed = self.control.informed.data
        index = self.index

        def inform() -> None:
            informed[index] = informed[index] + 1 & TICKET_MASK

        return ShardOutputs(
            done=self.control.done.data[slots.start : slots.stop],
            ring=self.parent_bell.ring,
            inform=inform,
            post=self.poster(post),
            times=self.control.times[slots.start : slots.stop],
            vitals=self.control.vitals[index],
            episode=self.control.episode[slots.start : slots.stop],
        )

    def poster(self, post: Callable[[Any], None]) -> Callable[[Letter | Reply], None]:
        """Announce, then post: the parent fetches as many messages as were announced.

        In this order, since a message that is bigger than the mailbox can only be
        posted while the parent reads it.
        """
        posted = self.control.posted.data
        index = self.index

        def announce_and_post(message: Letter | Reply) -> None:
            posted[index] = posted[index] + 1 & TICKET_MASK
            post(message)

        return announce_and_post


def serve(worker: Worker, endpoint: WorkerEndpoint) -> bool:
    """Obey until the pool closes; returns False if the parent went away instead."""
    queue = endpoint.control.queue[endpoint.index].data
    consumed = endpoint.control.consumed[endpoint.index].data
    stop = endpoint.control.stop[endpoint.index].data
    vitals = endpoint.control.vitals[endpoint.index].data
    capacity = len(queue)
    seen = 0
    while not worker.closing:
        if not endpoint.bell.wait(seen + 1, STOP_CHECK_SECONDS, endpoint.spin):
            if stop[0]:
                return False
            continue
        vitals[BUSY_SINCE] = began = time.perf_counter()
        vitals[CURRENT_COMMAND] = STEPPING
        count = endpoint.bell.count
        while seen != count:
            entry = queue[seen % capacity]
            seen = seen + 1 & TICKET_MASK
            worker.handle(entry)
            worker.guard()
            consumed[0] = seen
        endpoint.parent_bell.flush()
        vitals[BUSY_SECONDS] += time.perf_counter() - began
        vitals[BUSY_SINCE] = 0.0
    return True
