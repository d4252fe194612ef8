"""Observations and actions as values: taken out of a batch, stored."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from corral.engine.tree import by_space

Space = spaces.Space[Any]
# Spaces whose values are one array, of the space's own dtype.
ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)


def part_of(space: Space, batch: Any, position: int) -> Any:
    """One slot's own value out of a batch, copied."""

    def row(_: Space, values: Any) -> Any:
        value = values[position]
        return value.copy() if isinstance(value, np.ndarray) else value

    return by_space(row, space, batch)


def stored(space: Space, value: Any) -> Any:
    """A value as a pool returns it: in the dtypes of its space."""

    def cast(leaf: Space, value: Any) -> Any:
        return np.array(value, leaf.dtype) if isinstance(leaf, ARRAYS) else value

    return by_space(cast, space, value)
