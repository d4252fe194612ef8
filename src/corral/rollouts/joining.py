"""Rollouts of different slots joined into one; `Rollout.join`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from corral.errors import OptionError
from corral.rollouts import carry as carries

# One row per row and slot; one row per slot.
BY_ROW = ("reward", "terminated", "truncated", "started", "valid", "bootstrap")
BY_SLOT = ("next_started", "next_value")


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
    final_obs = _trees([one.final_obs for one in rollouts], 0)
    made: dict[str, Any] = {
        **{name: _of(rollouts, name, 1) for name in (*BY_ROW, "version")},
        **{name: _of(rollouts, name, 0) for name in BY_SLOT},
        "extras": {
            name: np.concatenate([one.extras[name] for one in rollouts], 1)
            for name in rollouts[0].extras
        },
        "obs": _trees([one.obs for one in rollouts], 1),
        "action": _trees([one.action for one in rollouts], 1),
        "next_obs": _trees([one.next_obs for one in rollouts], 0),
        "final_obs": _taken(final_obs, order),
        "episodes": tuple(sorted(episodes, key=lambda one: (one.row, one.slot))),
        "faults": tuple(fault for one in rollouts for fault in one.faults),
    }
    for name in ("first_carry", "next_carry"):
        parts = [getattr(one, name) for one in rollouts]
        made[name] = None if parts[0] is None else carries.joined(parts)
    return made


def _of(rollouts: Sequence[Any], name: str, axis: int) -> Any:
    return np.concatenate([getattr(one, name) for one in rollouts], axis)


def _trees(parts: Sequence[Any], axis: int) -> Any:
    """Batches of one space, joined."""
    one = parts[0]
    if isinstance(one, dict):
        return {key: _trees([part[key] for part in parts], axis) for key in one}
    if isinstance(one, tuple):
        return tuple(_trees(each, axis) for each in zip(*parts, strict=True))
    return np.concatenate(parts, axis)


def _taken(batch: Any, order: Any) -> Any:
    if isinstance(batch, dict):
        return {key: _taken(part, order) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_taken(part, order) for part in batch)
    return batch[order]


def _check(rollouts: Sequence[Any]) -> None:
    if not rollouts:
        raise OptionError("no rollouts to join; pass at least one")
    rows = [len(one) for one in rollouts]
    if len(set(rows)) > 1:
        raise OptionError(f"the rollouts have {rows} rows; join those of equal length")
    names = [sorted(one.extras) for one in rollouts]
    if any(one != names[0] for one in names):
        raise OptionError(f"the rollouts have different extras: {names}")
