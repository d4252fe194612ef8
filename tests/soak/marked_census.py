"""A census of this process and of all that carry a mark in their environment."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import psutil

from corral.tools import census


@dataclass(frozen=True, slots=True)
class Census:
    """What was counted, see `corral.tools.census`."""

    names: census.Census
    memory: int
    """Bytes; not compared."""

    def lost(self, later: Census) -> list[str]:
        """What is there later and was not here, as texts."""
        more = census.added(self.names, later.names)
        return [f"{kind}: {name}" for kind, names in more.items() for name in names]


def take_census(mark: str = "") -> Census:
    """Count; `mark` is what our processes have in their environment, as NAME=VALUE."""
    marked = [one for one in psutil.process_iter() if mark and _has(one, mark)]
    return Census(census.take_census(marked), psutil.Process().memory_info().rss)


def _has(process: psutil.Process, mark: str) -> bool:
    name, _, value = mark.partition("=")
    with suppress(psutil.Error, OSError):
        return bool(process.environ().get(name) == value)
    return False
