"""Observations and actions as values: taken out of a batch, stored, compared."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from corral.tools.doctor.differences import difference

ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)
"""Spaces whose values are one array, of the space's own dtype."""


def part_of(space: spaces.Space[Any], batch: Any, position: int) -> Any:
    """One slot's own value out of a batch, copied."""
    if isinstance(space, spaces.Dict):
        parts = space.spaces.items()
        return {key: part_of(part, batch[key], position) for key, part in parts}
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, batch, strict=True)
        return tuple(part_of(part, values, position) for part, values in pairs)
    value = batch[position]
    return value.copy() if isinstance(value, np.ndarray) else value


def stored(space: spaces.Space[Any], value: Any) -> Any:
    """A value as a pool returns it: in the dtypes of its space."""
    if isinstance(space, spaces.Dict):
        return {key: stored(part, value[key]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, value, strict=True)
        return tuple(stored(part, item) for part, item in pairs)
    if isinstance(space, ARRAYS):
        return np.array(value, dtype=space.dtype)
    return value


def same(one: Any, other: Any) -> bool:
    """Whether two values have the same bits."""
    return not difference("", one, other)
