"""NaN and infinity in observations and rewards: which env returned them, and when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import TrainingDiverged

Array = NDArray[Any]
Flags = NDArray[np.bool_]


def check(obs: Any, reward: Array | None, valid: Flags) -> None:
    """Raise TrainingDiverged if a valid row has a number that is not finite.

    Args:
        obs: `[rows, slots, ...]`, in the space's structure, not normalised.
        reward: `[rows, slots]`, or None.
        valid: which rows to check.
    """
    said = culprit(obs, reward, valid)
    if said:
        raise TrainingDiverged(
            f"{said}; this rollout was not used. Fix the env, or let it end the "
            "episode before its numbers diverge"
        )


def culprit(obs: Any, reward: Array | None, valid: Flags) -> str:
    """Describe the first number that is not finite, with slot and row; "" if none."""
    leaves = [(f"the observation{path}", leaf) for path, leaf in _leaves(obs)]
    if reward is not None:
        leaves.append(("the reward", reward))
    found = []
    for name, leaf in leaves:
        if leaf.dtype.kind in "fc" and not np.isfinite(leaf).all():
            bad = ~np.isfinite(leaf).reshape(*valid.shape, -1).all(-1) & valid
            found += [(*place, name, leaf) for place in np.argwhere(bad)[:1].tolist()]
    if not found:
        return ""
    row, slot, name, leaf = min(found, key=lambda one: one[0])
    numbers = np.ravel(leaf[row, slot])
    value = numbers[~np.isfinite(numbers)][0]
    return f"the env of slot {slot} returned {name} {value} in row {row} of the rollout"


def _leaves(obs: Any, path: str = "") -> Iterator[tuple[str, Array]]:
    if isinstance(obs, np.ndarray):
        yield path, obs
    elif isinstance(obs, (dict, tuple, list)):
        for key, part in obs.items() if isinstance(obs, dict) else enumerate(obs):
            yield from _leaves(part, f"{path}[{key!r}]")
