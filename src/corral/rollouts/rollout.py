"""A rollout: consecutive rows of every slot, which own their memory.

Row t of a slot is an observation, the action, and its result:

    obs[t]  started[t]  action[t]  ──►  reward[t]  terminated[t]  truncated[t]  valid[t]

    row t is followed by obs[t + 1], and the last row by `next_obs`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import Fault
from corral.rollouts.joining import joined


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """An episode that ended in a rollout, terminated or truncated.

    Attributes:
        row: The row of the rollout that it ended with.
        seed: The seed that it was reset with; -1 if none.
        return_: The sum of its rewards, not normalised.
        terminated: False if it was truncated.
        info: The info of its last step.
    """

    slot: int
    row: int
    seed: int
    return_: float
    length: int
    terminated: bool
    info: dict[str, Any]


@dataclass(slots=True)
class Rollout:
    """`[rows, slots, ...]` arrays; `obs` and `action` in their space's structure.

    Attributes:
        obs: The policy's observations: normalised, if the collector has an `obs_norm`.
        reward: Normalised, if the collector has a `reward_norm`.
        started: True where `obs` is the first observation of an episode.
        valid: False for padding rows, which must not be learned from: the slot was
            reset instead of stepped (next_step), or the result of the action was lost
            (a fault).
        extras: The policy's extras, by name.
        final_obs: (ends, ...): the last observations of the episodes that ended, one
            for each True in `ended`, row by row.
        next_obs: [slots, ...]: observations after the last row; of new episodes after
            an end.
        next_started: [slots]: True where `next_obs` is the first observation of an
            episode.
        first_carry: The policy's carry before row 0; one row per slot.
        next_carry: The same after the last row, where the next rollout starts.
        bootstrap: `policy.value` of the last observation of truncated episodes; 0
            elsewhere.
        next_value: [slots]: `policy.value` of `next_obs`; 0 if the policy has no
            `value`.
        episodes: Episodes that ended in this rollout, by row and slot.
        faults: Faults that ended episodes; their rows are truncated and not valid.
        version: [rows, slots]: the version of the weights that chose each row, counted
            from 1 by the collector: one more whenever it finds that the policy's
            `weights` have changed. 0 if the policy has none.
    """

    obs: Any
    action: Any
    reward: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    started: NDArray[np.bool_]
    valid: NDArray[np.bool_]
    extras: dict[str, NDArray[Any]]
    final_obs: Any
    next_obs: Any
    next_started: NDArray[np.bool_]
    first_carry: Any
    next_carry: Any
    bootstrap: NDArray[np.float64]
    next_value: NDArray[np.float64]
    episodes: tuple[EpisodeSummary, ...]
    faults: tuple[Fault, ...]
    version: NDArray[np.int64]

    @property
    def ended(self) -> NDArray[np.bool_]:
        """Where an episode ended, for either reason."""
        return self.terminated | self.truncated

    @staticmethod
    def join(rollouts: Sequence[Rollout]) -> Rollout:
        """Join rollouts of the same rows along their slots, in this order.

        The slots of the second follow those of the first, and so on.
        """
        return Rollout(**joined(rollouts))

    @property
    def slots(self) -> int:
        """The number of environments."""
        return int(self.reward.shape[1])

    def __len__(self) -> int:
        return len(self.reward)
