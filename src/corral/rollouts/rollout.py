"""A rollout: the next so many rows of every slot, in memory of its own.

Row t of a slot is what was seen, what was decided, and what came of it:

    obs[t]  started[t]  action[t]  ──►  reward[t]  terminated[t]  truncated[t]  valid[t]

    what comes after row t is obs[t + 1], and after the last row `next_obs`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import Fault


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """An episode that ended in a rollout, by itself or by its time limit."""

    slot: int
    row: int
    """The row of the rollout that it ended with."""
    seed: int
    """What it was reset with; -1 where it was given none."""
    return_: float
    """The sum of its rewards, as the env gave them."""
    length: int
    terminated: bool
    """False if it was truncated."""
    info: dict[str, Any]
    """The info that came with its last step."""


@dataclass(slots=True)
class Rollout:
    """`[rows, slots, ...]` arrays; `obs` and `action` in their space's structure."""

    obs: Any
    """What the policy saw: normalised, where the collector was told to."""
    action: Any
    reward: NDArray[np.float64]
    """To learn from: scaled, where the collector was told to."""
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    started: NDArray[np.bool_]
    """True where `obs` is the first observation of an episode."""
    valid: NDArray[np.bool_]
    """False where the row is filler, not to be learned from: the action was not taken,
    since the slot was reset instead (next_step), or what came of it was lost (a fault).
    """
    extras: dict[str, NDArray[Any]]
    """What the policy said of its decisions, by name."""
    final_obs: Any
    """(ends, ...): the last observations of the episodes that ended, one for each True
    in `ended`, row by row."""
    next_obs: Any
    """[slots, ...]: what followed the last row; of another episode where it ended."""
    next_started: NDArray[np.bool_]
    """[slots]: True where `next_obs` is the first observation of an episode."""
    first_carry: Any
    """The policy's carry before row 0; one row per slot."""
    next_carry: Any
    """The same after the last row: what the next rollout begins with."""
    bootstrap: NDArray[np.float64]
    """`policy.value` of the last observation where an episode was truncated; else 0."""
    next_value: NDArray[np.float64]
    """[slots]: `policy.value` of `next_obs`; 0 for a policy without."""
    episodes: tuple[EpisodeSummary, ...]
    """Those that ended here, by row and slot."""
    faults: tuple[Fault, ...]
    """What cut episodes short; their rows are truncated and not valid."""

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Where an episode ended, for either reason."""
        return self.terminated | self.truncated

    @property
    def slots(self) -> int:
        """How many environments."""
        return int(self.reward.shape[1])

    def __len__(self) -> int:
        return len(self.reward)
