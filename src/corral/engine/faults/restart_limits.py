"""How often an env or worker may be started again, and how long to wait before that.

Pure arithmetic: the time is a parameter, so that a worker, its parent and a test can
each count with a clock of their own.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

RATE_WINDOW_SECONDS = 60.0
FIRST_DELAY = 0.05
LONGEST_DELAY = 5.0


def restart_delay(recent: int) -> float:
    """Seconds to wait, after so many restarts within a minute: 0, 0.05, 0.1, …"""
    return min(LONGEST_DELAY, FIRST_DELAY * 2 ** (recent - 1)) if recent else 0.0


@dataclass(slots=True)
class RestartBudget:
    """The restarts of each slot so far, and whether one more is allowed."""

    in_all: int = 100
    per_minute: int = 10
    _times: dict[Hashable, list[float]] = field(default_factory=dict)

    def spend(self, spender: Hashable, now: float) -> float | None:
        """One more restart: the seconds to wait before it, or None if none is left."""
        times = self._times.get(spender, ())
        recent = sum(now - time < RATE_WINDOW_SECONDS for time in times)
        if len(times) >= self.in_all or recent >= self.per_minute:
            return None
        self.note(spender, now)
        return restart_delay(recent)

    def count(self, spender: Hashable) -> int:
        """How often it was restarted."""
        return len(self._times.get(spender, ()))

    def note(self, spender: Hashable, now: float) -> None:
        """Count a restart, also one that was spent elsewhere."""
        self._times.setdefault(spender, []).append(now)
