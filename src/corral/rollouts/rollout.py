"""A rollout: consecutive rows of every slot, which own their memory.

Row t of a slot is an observation, the action, and its result:

    obs[t]  started[t]  action[t]  ──►  reward[t]  terminated[t]  truncated[t]  valid[t]

    row t is followed by obs[t + 1], and the last row by `next_obs`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.tree import mapped
from corral.errors import Fault, OptionError
from corral.rollouts import carry as carries


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


# Joining ------------------------------------------------------------------------------


# One row per row and slot; one row per slot.
BY_ROW = (
    *("obs", "action", "reward", "terminated", "truncated", "started", "valid"),
    *("bootstrap", "version", "extras"),
)
BY_SLOT = ("next_obs", "next_started", "next_value")


def joined(rollouts: Sequence[Any]) -> dict[str, Any]:
    """The fields of rollouts of the same rows, joined along their slots.

    Slots are numbered on: those of the second follow those of the first.

    Raises:
        OptionError: they have not the same rows, extras or observations.
    """
    _check(rollouts)
    first = [0, *np.cumsum([one.slots for one in rollouts]).tolist()]
    at_row, at_slot = np.concatenate([np.argwhere(one.ended) for one in rollouts]).T
    shift = np.repeat(first[:-1], [int(one.ended.sum()) for one in rollouts])
    order = np.lexsort((at_slot + shift, at_row))
    episodes = [
        replace(episode, slot=episode.slot + at)
        for one, at in zip(rollouts, first, strict=False)
        for episode in one.episodes
    ]
    final_obs = _side_by_side(rollouts, "final_obs", 0)
    return {
        **{name: _side_by_side(rollouts, name, 1) for name in BY_ROW},
        **{name: _side_by_side(rollouts, name, 0) for name in BY_SLOT},
        "final_obs": mapped(lambda leaf: leaf[order], final_obs),
        "episodes": tuple(sorted(episodes, key=lambda one: (one.row, one.slot))),
        "faults": tuple(fault for one in rollouts for fault in one.faults),
        "first_carry": carries.joined([one.first_carry for one in rollouts]),
        "next_carry": carries.joined([one.next_carry for one in rollouts]),
    }


def _side_by_side(rollouts: Sequence[Any], name: str, axis: int) -> Any:
    """An array, or a batch of a space, of all rollouts joined."""
    parts = [getattr(one, name) for one in rollouts]
    return mapped(lambda *leaves: np.concatenate(leaves, axis), *parts)


def _check(rollouts: Sequence[Any]) -> None:
    if not rollouts:
        raise OptionError("no rollouts to join; pass at least one")
    rows = [len(one) for one in rollouts]
    if len(set(rows)) > 1:
        raise OptionError(f"the rollouts have {rows} rows; join those of equal length")
    names = [sorted(one.extras) for one in rollouts]
    if any(one != names[0] for one in names):
        raise OptionError(f"the rollouts have different extras: {names}")
