"""The spaces of observations and actions, by name."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.tools.testing.faulty_envs import ODD_SPACES

_BOXES = {
    f"box {np.dtype(kind).name}": spaces.Box(0, 100, (3,), kind)
    for kind in (np.int8, np.uint16, np.int32, np.int64, np.uint64)
}
FIXED: dict[str, spaces.Space[Any]] = {
    "vector": spaces.Box(-10, 10, (4,), np.float32),
    "choice": spaces.Discrete(4),
    **_BOXES,
    **{
        name: ODD_SPACES[name]
        for name in ("scalar", "unbounded", "image", "half", "flag", "empty")
    },
    "from minus five": ODD_SPACES["from minus five"],
    "bits": ODD_SPACES["bits"],
    "dice": ODD_SPACES["dice"],
    "dice in a row": spaces.MultiDiscrete([2, 3, 4]),
    "dict": spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
            "place": spaces.Box(-1, 1, (2,), np.float64),
            "key": spaces.Discrete(7),
        }
    ),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,), np.float32))),
    "nested": ODD_SPACES["nested"],
}
"""Those that lie in the block."""
MAILED: dict[str, spaces.Space[Any]] = {
    **{
        name: ODD_SPACES[name]
        for name in ("text", "sequence", "stacked sequence", "graph", "one of")
    },
    "text in a dict": spaces.Dict(
        {"word": spaces.Text(5), "number": spaces.Box(0, 1, (2,), np.float32)}
    ),
    "graph in a tuple": spaces.Tuple(
        (ODD_SPACES["graph"], spaces.MultiBinary(3), spaces.Sequence(spaces.Text(3)))
    ),
}
"""Those with parts of no fixed size."""
SPACES = {**FIXED, **MAILED}
SB3_OBS = (
    "vector",
    "choice",
    "box int32",
    "image",
    "bits",
    "dice in a row",
    "dict",
    "unbounded",
)
"""Spaces that Stable-Baselines3's own vector environments can hold."""
SB3_ACTIONS = ("vector", "choice", "dice in a row", "box int32", "unbounded")


def space(name: str) -> spaces.Space[Any]:
    """A copy of a space, which samples by itself."""
    return copy.deepcopy(SPACES[name])


def sampled(of: spaces.Space[Any], number: int) -> Any:
    """The sample of a space that belongs to a number."""
    of.seed(number % 2**31)
    return of.sample()
