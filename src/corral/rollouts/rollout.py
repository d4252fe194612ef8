"""A rollout: consecutive rows of every slot, which own their memory.

Row t of a slot is an observation, the action, and its result:

    obs[t]  started[t]  action[t]  ──►  reward[t]  terminated[t]  truncated[t]  valid[t]

    row t is followed by obs[t + 1], and the last row by `next_obs`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import Fault


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """An episode that ended in a rollout, terminated or truncated."""

    slot: int
    row: int
    """The row of the rollout that it ended with."""
    seed: int
    """The seed that it was reset with; -1 if none."""
    return_: float
    """The sum of its rewards, not normalised."""
    length: int
    terminated: bool
    """False if it was truncated."""
    info: dict[str, Any]
    """The info of its last step."""


@dataclass(slots=True)
class Rollout:
    """`[rows, slots, ...]` arrays; `obs` and `action` in their space's structure."""

    obs: Any
    """The policy's observations: normalised, if the collector has an `obs_norm`."""
    action: Any
    reward: NDArray[np.float64]
    """Normalised, if the collector has a `reward_norm`."""
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    started: NDArray[np.bool_]
    """True where `obs` is the first observation of an episode."""
    valid: NDArray[np.bool_]
    """False for padding rows, which must not be learned from: the slot was reset
    instead of stepped (next_step), or the result of the action was lost (a fault)."""
    extras: dict[str, NDArray[Any]]
    """The policy's extras, by name."""
    final_obs: Any
    """(ends, ...): the last observations of the episodes that ended, one for each True
    in `ended`, row by row."""
    next_obs: Any
    """[slots, ...]: observations after the last row; of new episodes after an end."""
    next_started: NDArray[np.bool_]
    """[slots]: True where `next_obs` is the first observation of an episode."""
    first_carry: Any
    """The policy's carry before row 0; one row per slot."""
    next_carry: Any
    """The same after the last row, where the next rollout starts."""
    bootstrap: NDArray[np.float64]
    """`policy.value` of the last observation of truncated episodes; 0 elsewhere."""
    next_value: NDArray[np.float64]
    """[slots]: `policy.value` of `next_obs`; 0 if the policy has no `value`."""
    episodes: tuple[EpisodeSummary, ...]
    """Episodes that ended in this rollout, by row and slot."""
    faults: tuple[Fault, ...]
    """Faults that ended episodes; their rows are truncated and not valid."""

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Where an episode ended, for either reason."""
        return self.terminated | self.truncated

    @property
    def slots(self) -> int:
        """The number of environments."""
        return int(self.reward.shape[1])

    def __len__(self) -> int:
        return len(self.reward)
