"""How a number falls over a run: pure functions of the part that is done.

An update is scheduled by the steps that were learnt from before it: the first one has
the whole number, and the last one more than 0, since it too has something to learn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

Schedule = Literal["constant", "linear", "cosine"]
# A number in pieces: (part of the run that is done, value), linear between them.
Pieces = tuple[tuple[float, float], ...]

# Name -> what is left of the number, once a part in [0, 1] of the run is done.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: (1.0 + math.cos(math.pi * done)) / 2.0,
}


def scheduled(value: float | Pieces, schedule: Schedule, done: float) -> float:
    """What the number is now."""
    done = min(max(done, 0.0), 1.0)
    if isinstance(value, tuple):  # pieces are a schedule of their own
        return _between(value, done)
    return value * SCHEDULES[schedule](done)


def check_pieces(value: Any) -> Any:
    """Raise ValueError if pieces do not ascend from 0 to at most 1."""
    if isinstance(value, tuple):
        parts = [part for part, _ in value]
        if not parts or parts[0] != 0 or parts != sorted(parts) or parts[-1] > 1:
            raise ValueError(
                "pieces are [part of the run, value]: parts ascend from 0 to at most "
                f"1, as in [[0, 3e-4], [0.5, 1e-4]]; these are {parts}"
            )
        if (least := min(number for _, number in value)) < 0:
            raise ValueError(f"values of pieces must be >= 0; one is {least}")
    return value


def _between(pieces: Pieces, done: float) -> float:
    before = max(place for place, (part, _) in enumerate(pieces) if part <= done)
    begin, low = pieces[before]
    if before + 1 == len(pieces):
        return low
    end, high = pieces[before + 1]
    return low + (high - low) * (done - begin) / (end - begin)
