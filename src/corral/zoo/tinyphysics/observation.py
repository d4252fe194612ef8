"""The observation of a controller: the error, the car's state, and the road ahead.

    error, its change, its sum · lataccel, speed, curvature · 49 curvatures ahead · 0

The sum starts with the warm-up, as in a PID controller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from corral.errors import OptionError
from corral.zoo.tinyphysics.track import AHEAD, STEER_LIMIT

FIRST_AHEAD = 6
SIZE = 56
OBS_SCALE = np.full(SIZE, 1000.0)
"""Factors that give all numbers a similar size."""
OBS_SCALE[:FIRST_AHEAD] = 10.0, 1.0, 0.1, 2.0, 0.03, 1000.0
LOOKING_AHEAD = slice(FIRST_AHEAD, FIRST_AHEAD + AHEAD)


def observation_space(dtype: str) -> Box:
    """Unbounded numbers of this dtype."""
    if dtype not in ("float32", "float64"):
        raise OptionError(f"dtype is {dtype!r}; choose float32 or float64")
    return Box(-np.inf, np.inf, (SIZE,), np.dtype(dtype).type)


def action_space() -> Box:
    """The steer; positive is to the right."""
    return Box(-STEER_LIMIT, STEER_LIMIT, (1,), np.float32)


def finished(obs: NDArray[np.float64], dtype: Any, scaled: bool) -> NDArray[Any]:
    """The observation that the env returns: a copy, scaled if asked for."""
    return (obs * OBS_SCALE if scaled else obs).astype(dtype)
