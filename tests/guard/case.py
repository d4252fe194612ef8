"""A case of the guard: what is played, on which executors, and what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Played = dict[str, dict[str, str]]
"""Part -> field -> hash."""

EXECUTORS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial", "isolation": "shared"},
    "thread": {"backend": "thread", "workers": 2, "isolation": "shared"},
    "thread of 3": {"backend": "thread", "workers": 3, "isolation": "shared"},
    "process": {"backend": "process", "workers": 2, "isolation": "shared"},
    "process of 1": {"backend": "process", "workers": 1, "isolation": "shared"},
    "process of 3": {"backend": "process", "workers": 3, "isolation": "shared"},
    "own processes": {"backend": "process", "isolation": "slot"},
    "auto": {},
}
"""How workers are asked for; none of it may show in what comes back."""
SERIAL, PROCESS = ("serial",), ("process",)
TWO = ("serial", "process")
THREE = ("serial", "thread", "process")
MODES = ("same_step", "next_step", "off")


@dataclass(frozen=True)
class Case:
    """All of its executors have to give the one recorded result."""

    play: Callable[[dict[str, Any]], Played]
    """Given options of a pool: where it runs."""
    executors: tuple[str, ...] = THREE
    needs: tuple[str, ...] = ()
    """Packages without which it is skipped."""

    def on(self, executor: str) -> Played:
        return self.play(dict(EXECUTORS[executor]))
