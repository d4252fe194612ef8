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


@dataclass(frozen=True, slots=True)
class RestartLimits:
    """The restarts allowed to each slot."""

    in_all: int = 100
    per_minute: int = 10

    def delay(self, recent: int) -> float:
        """Seconds to wait, after so many restarts within a minute: 0, 0.05, 0.1, …"""
        return min(LONGEST_DELAY, FIRST_DELAY * 2 ** (recent - 1)) if recent else 0.0


@dataclass(slots=True)
class RestartBudget:
    """The restarts so far, and whether one more is allowed."""

    limits: RestartLimits
    _counts: dict[Hashable, int] = field(default_factory=dict)
    _times: dict[Hashable, list[float]] = field(default_factory=dict)

    def spend(self, who: Hashable, now: float) -> float | None:
        """One more restart: the seconds to wait before it, or None if none is left."""
        recent = self._recent(who, now)
        if self.count(who) >= self.limits.in_all or recent >= self.limits.per_minute:
            return None
        self.note(who, now)
        return self.limits.delay(recent)

    def count(self, who: Hashable) -> int:
        """How often it was restarted."""
        return self._counts.get(who, 0)

    def note(self, who: Hashable, now: float) -> None:
        """Count a restart, also one that was spent elsewhere."""
        self._recent(who, now)
        self._counts[who] = self.count(who) + 1
        self._times[who].append(now)

    def _recent(self, who: Hashable, now: float) -> int:
        """How many restarts were within the last minute; earlier ones are dropped."""
        times = self._times.get(who, ())
        kept = [time for time in times if now - time < RATE_WINDOW_SECONDS]
        self._times[who] = kept
        return len(kept)

    def part(self, members: range) -> RestartBudget:
        """A copy of what these have spent."""
        return RestartBudget(
            self.limits,
            {who: count for who, count in self._counts.items() if who in members},
            {who: list(times) for who, times in self._times.items() if who in members},
        )
