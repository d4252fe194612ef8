"""Numbers that nothing can be learnt from: where they came from, told in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import TrainingDiverged

Array = NDArray[Any]
Flags = NDArray[np.bool_]


def check(obs: Any, reward: Array | None, valid: Flags) -> None:
    """Refuse what is not finite, before anything is made of it.

    Args:
        obs: `[rows, slots, ...]`, in the space's structure, as the envs gave them.
        reward: `[rows, slots]`; None where there are none to look at.
        valid: which of them count.
    """
    said = culprit(obs, reward, valid)
    if said:
        raise TrainingDiverged(
            f"{said}; nothing was made of this rollout. Mend the env, or let it end "
            "the episode before its numbers break down"
        )


def culprit(obs: Any, reward: Array | None, valid: Flags) -> str:
    """The first number that is not finite, with its slot and row; "" if all are."""
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
    return f"the env of slot {slot} gave {name} {value} in row {row} of the rollout"


def _first(leaf: Array, valid: Flags) -> tuple[int, int] | None:
    """Row and slot of the first one, row by row."""
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
