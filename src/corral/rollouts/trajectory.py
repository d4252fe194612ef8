"""A trajectory: consecutive rows of one slot, in memory of its own.

Row t is what was seen, what was done about it, and what came of it:

    obs[t]  started[t]  action[t]  ──►  reward[t]  terminated[t]  truncated[t]  valid[t]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Some rows of one slot; arrays are `(length, ...)`, in the space's structure."""

    slot: int
    obs: Any
    started: NDArray[np.bool_]
    """True where `obs` is the first observation of an episode."""
    action: Any
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    """False where the row is filler: the action was not taken, the episode restarted.
    """
    final_obs: Any
    """(ends, ...): the last observations of the episodes that ended, one for each True
    in `ended`, in their order."""
    next_obs: Any
    """(1, ...): what followed the last row; of another episode where it ended."""
    next_started: bool
    extras: dict[str, NDArray[Any]]
    """What else was said of each row, by name."""

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Where an episode ended, for either reason."""
        return self.terminated | self.truncated

    def __len__(self) -> int:
        return len(self.reward)
