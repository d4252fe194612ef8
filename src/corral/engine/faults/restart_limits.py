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
    _counts: dict[Hashable, int] = field(default_factory=dict)
    _times: dict[Hashable, list[float]] = field(default_factory=dict)

    def spend(self, spender: Hashable, now: float) -> float | None:
        """One more restart: the seconds to wait before it, or None if none is left."""
        recent = len(self._recent(spender, now))
        if self.count(spender) >= self.in_all or recent >= self.per_minute:
            return None
        self.note(spender, now)
        return restart_delay(recent)

    def count(self, spender: Hashable) -> int:
        """How often it was restarted."""
        return self._counts.get(spender, 0)

    def note(self, spender: Hashable, now: float) -> None:
        """Count a restart, also one that was spent elsewhere."""
        self._counts[spender] = self.count(spender) + 1
        self._times[spender] = [*self._recent(spender, now), now]

    def _recent(self, spender: Hashable, now: float) -> list[float]:
        """The times of its restarts within the last minute."""
        times = self._times.get(spender, ())
        return [time for time in times if now - time < RATE_WINDOW_SECONDS]

    def part(self, members: range) -> RestartBudget:
        """A copy of what these have spent."""
        part = RestartBudget(self.in_all, self.per_minute)
        for spender in members:
            if spender in self._counts:
                part._counts[spender] = self._counts[spender]
                part._times[spender] = self._times[spender].copy()
        return part
