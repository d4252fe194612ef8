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
    named = [(f"the observation{path}", leaf) for path, leaf in _leaves(obs)]
    if reward is not None:
        named.append(("the reward", reward))
    found = [
        (*place, name, leaf)
        for name, leaf in named
        if (place := _first(leaf, valid)) is not None
    ]
    if not found:
        return ""
    row, slot, name, leaf = min(found, key=lambda one: one[0])
    numbers = np.ravel(leaf[row, slot])
    value = numbers[~np.isfinite(numbers)][0]
    return f"the env of slot {slot} returned {name} {value} in row {row} of the rollout"


def _first(leaf: Array, valid: Flags) -> tuple[int, int] | None:
    """Row and slot of the first number that is not finite, row by row."""
    if leaf.dtype.kind not in "fc":
        return None
    bad = ~np.isfinite(leaf)
    if not bad.any():
        return None
    places = np.argwhere(bad.reshape(*valid.shape, -1).any(-1) & valid)
    return (int(places[0][0]), int(places[0][1])) if len(places) else None


def _leaves(obs: Any, path: str = "") -> Iterator[tuple[str, Array]]:
    parts: Any = ()
    if isinstance(obs, dict):
        parts = obs.items()
    elif isinstance(obs, (tuple, list)):
        parts = enumerate(obs)
    elif isinstance(obs, np.ndarray):
        yield path, obs
    for key, part in parts:
        yield from _leaves(part, f"{path}[{key!r}]")
