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
    """One item: what was asked for, and the result.

    `obs`, `action`, `reward` and `extras` have one row per step and own their memory.
    They are None, and {}, if rows were not kept or the item failed.
    """

    item: int
    """Its index among the items asked for."""
    seed: int
    task: Any = NO_TASK
    """`core.NO_TASK` if it has none."""
    return_: float = float("nan")
    """The sum of its rewards; nan if it failed."""
    length: int = 0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    """The info of its last step."""
    obs: Any = None
    action: Any = None
    reward: NDArray[np.float64] | None = None
    extras: dict[str, NDArray[Any]] = field(default_factory=dict)
    final_obs: Any = None
    """(1, ...): the last observation."""
    faults: tuple[Fault, ...] = ()
    """Faults on the way; after each the item was run again with the same seed."""
    failed: bool = False
    """Whether Corral gave up after the last of these faults."""

    @property
    def fault(self) -> Fault | None:
        """Why the item failed, if it did."""
        return self.faults[-1] if self.failed else None

    def __len__(self) -> int:
        return self.length
