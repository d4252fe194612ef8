"""The loop of a worker: wait for the bell, obey, ring.

while not closing:
    bell.wait -> queue entry -> worker.handle -> (per slot: done, ring) -> flush
"""

from __future__ import annotations

import time

from corral.engine.layout.plan import (
    BUSY_SECONDS,
    BUSY_SINCE,
    CURRENT_COMMAND,
    STEPPING,
    TICKET_MASK,
)
from corral.engine.worker.endpoint import WorkerEndpoint
from corral.engine.worker.worker import Worker

STOP_CHECK_SECONDS = 0.25
"""Seconds between looks at the stop word; the lifeline wakes us anyway."""


def serve(worker: Worker, endpoint: WorkerEndpoint) -> bool:
    """Obey until the pool closes; returns False if the parent went away instead."""
    queue = endpoint.control.queue[endpoint.index].data
    consumed = endpoint.control.consumed[endpoint.index].data
    stop = endpoint.control.stop[endpoint.index].data
    vitals = endpoint.control.vitals[endpoint.index].data
    bell, parent_bell = endpoint.bell, endpoint.parent_bell
    assert bell is not None and parent_bell is not None
    capacity = len(queue)
    seen = 0
    while not worker.closing:
        if not bell.wait(seen + 1, STOP_CHECK_SECONDS, endpoint.spin):
            if stop[0]:
                return False
            continue
        vitals[BUSY_SINCE] = began = time.perf_counter()
        vitals[CURRENT_COMMAND] = STEPPING
        count = bell.count
        while seen != count:
            entry = queue[seen % capacity]
            seen = seen + 1 & TICKET_MASK
            worker.handle(entry)
            worker.guard()
            consumed[0] = seen
        parent_bell.flush()
        vitals[BUSY_SECONDS] += time.perf_counter() - began
        vitals[BUSY_SINCE] = 0.0
    return True
