"""A simulated policy: a fixed amount of computing between recv and send.

Not a loop that watches the clock: such a loop takes the same time with and without a
core, and hides the time that it waits for one.
"""

from __future__ import annotations

import time

CALIBRATION_ITERATIONS = 20_000
"""Iterations of one calibration run, some milliseconds."""


def compute(iterations: int) -> int:
    """So much arithmetic."""
    value = 1
    for _ in range(iterations):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    return value


def iterations_for(seconds: float) -> int:
    """How many iterations take so long on this machine, measured now."""
    if seconds <= 0:
        return 0
    fastest = float("inf")  # the run with the least disturbance
    for _ in range(15):
        began = time.perf_counter()
        compute(CALIBRATION_ITERATIONS)
        fastest = min(fastest, time.perf_counter() - began)
    return max(1, round(CALIBRATION_ITERATIONS * seconds / fastest))
