"""How a number falls over a run: pure functions of the part that is done.

An update is scheduled by the steps that were learnt from before it: the first one has
the whole number, and the last one more than 0, since it too has something to learn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]

# Name -> what is left of the number, once a part in [0, 1] of the run is done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: (1.0 + math.cos(math.pi * done)) / 2.0,
}


def scheduled(value: float, schedule: Schedule, done: float) -> float:
    """What the number is now."""
    return value * SCHEDULES[schedule](min(max(done, 0.0), 1.0))
