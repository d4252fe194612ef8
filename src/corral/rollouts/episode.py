"""An episode from its first observation to its last, as `run_episodes` returns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import NO_TASK
from corral.errors import Fault


@dataclass(frozen=True, slots=True)
class Episode:
    """One item: what was asked for, and what came of it.

    `obs`, `action`, `reward` and `extras` have one row per step, in memory of their
    own; they are None, and {}, where rows were not kept or the item failed.
    """

    item: int
    """Its place among those asked for."""
    seed: int
    task: Any = NO_TASK
    """`core.NO_TASK` if it was given none."""
    return_: float = float("nan")
    """The sum of its rewards; nan if it failed."""
    length: int = 0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    """The info that came with its last step."""
    obs: Any = None
    action: Any = None
    reward: NDArray[np.float64] | None = None
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)
    final_obs: Any = None
    """(1, ...): the last observation, which no action followed."""
    faults: tuple[Fault, ...] = ()
    """What went wrong on the way; each time it was run again, with the same seed and
    task."""
    failed: bool = False
    """Whether it was given up, after the last of these faults."""

    @property
    def fault(self) -> Fault | None:
        """Why it was given up, if it was."""
        return self.faults[-1] if self.failed else None

    def __len__(self) -> int:
        return self.length
