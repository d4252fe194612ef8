"""Rollouts of different slots joined into one; `Rollout.join`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from corral.engine.tree import mapped
from corral.errors import OptionError
from corral.rollouts import carry as carries

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
