"""Where the caller's time goes: thinking, waiting for envs, or moving data.

    send ─┤ copying ├─ overlapped ─┤ waiting ├ copying ├─ recv returns ── policy ── send

Five looks at the clock a step, about 0.5 µs in all; `benchmarks/stats_cost.py`
measures it.
"""

from __future__ import annotations

from time import perf_counter


class CallerTime:
    """Seconds since the pool was opened, by what they were spent on."""

    __slots__ = ("_mark", "began", "copying", "policy", "waiting")

    def __init__(self) -> None:
        self.began = self._mark = perf_counter()
        self.policy = 0.0
        """Nothing was under way: every worker waited for the caller."""
        self.waiting = 0.0
        """The caller waited for results; under serial, ran the envs."""
        self.copying = 0.0
        """In send and recv otherwise."""

    def thinking(self, now: float, idle: bool) -> float:
        """`policy` up to now, which is in the middle of it if nothing is under way."""
        return self.policy + (now - self._mark if idle else 0.0)

    def enter(self, idle: bool) -> None:
        """A send begins, or a recv; `idle` if nothing is under way."""
        now = perf_counter()
        if idle:
            self.policy += now - self._mark
        self._mark = now

    def leave(self) -> None:
        """A send or recv ends."""
        now = perf_counter()
        self.copying += now - self._mark
        self._mark = now

    def waited(self, began: float) -> None:
        """The waiting of a recv is over."""
        now = perf_counter()
        self.waiting += now - began
        self._mark = now
