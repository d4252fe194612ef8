"""What one slot did, to be done again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SlotHistory:
    """What one slot is to do."""

    seed: int | None
    options: dict[str, Any] | None
    task: Any
    """`core.NO_TASK` if it was given none."""
    before: tuple[Any, ...] = ()
    """Actions before the reset that failed, if it was a reset."""
    actions: tuple[Any, ...] = ()
    """From the episode's first step to the one that failed, if it was a step."""
    seconds: float = 0.0
    """That this took, about."""
