"""What a shard remembers of one slot: the episode under way, and what comes next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from corral.core import NO_TASK

NO_ACTION = object()


@dataclass(slots=True)
class SlotEpisode:
    """What the shard remembers of one slot."""

    number: int = -1
    restarts: int = 0
    """How often this episode was begun again, after a fault."""
    began: int = 0
    """The ticket of the command that it began in."""
    first_began: int = 0
    """The same of the first time, if it was begun again."""
    broken: bool = False
    """Whether the next one is this one again."""
    options: dict[str, Any] | None = None
    seed: int | None = None
    task: Any = NO_TASK
    next_task: Any = NO_TASK
    next_options: dict[str, Any] | None = None
    next_seed: int | None = None
    mailed_action: list[Any] | None = None
    raw_action: Any = NO_ACTION
