"""A route made ready to be driven: its warm-up is over, a controller comes next.

In rows CONTEXT to CONTROL_START the car does as was asked of it. The model's answers to
those rows are thrown away, so they are not computed; their random draws are made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.zoo.tinyphysics.route import CONTEXT, CONTROL_START, Floats, Route
from corral.zoo.tinyphysics.tokens import encode

STEER_LIMIT = 2.0
LARGEST_CHANGE = 0.5
"""Of the lateral acceleration from row to row, m/s²."""
AHEAD = 49
"""Rows that a controller is told in advance."""


@dataclass(frozen=True, slots=True)
class Track:
    """Arrays of `length` rows and one more: the last again, for whoever looks there."""

    path: str
    length: int
    states: NDArray[np.float32]
    """(rows, 4): steer, roll lataccel, speed, acceleration; steers are filled in."""
    tokens: NDArray[np.int64]
    lataccel: Floats
    """Where the car is; filled in as it goes."""
    target: Floats
    speed: Floats
    curvature: Floats
    """Of the road that is asked for."""
    ahead: Floats
    """(length + 1 + AHEAD,): the same, 0 behind the end."""
    draws: Floats
    """What row i's token is drawn with."""
    error: float
    """Target less lataccel before row CONTROL_START - 1."""
    error_sum: float
    """Of all rows from CONTEXT to there."""

    @classmethod
    def of(cls, route: Route, seed: int, road: str = "curvature") -> Track:
        """Drive it up to CONTROL_START, with draws of that seed.

        Args:
            route: which.
            seed: of the draws.
            road: what `curvature` and `ahead` are: see TinyPhysicsEnv.
        """
        length = len(route)
        target, speed = _and_last(route.target), _and_last(route.v_ego)
        roll = _and_last(route.roll_lataccel)
        curvature = target - roll
        if road == "curvature":
            curvature /= speed**2 + 1e-6
        states = np.zeros((length + 1, 4), np.float32)
        states[:CONTROL_START, 0] = np.clip(route.steer, -STEER_LIMIT, STEER_LIMIT)
        states[:, 1], states[:, 2], states[:, 3] = roll, speed, _and_last(route.a_ego)
        lataccel = np.zeros(length + 1)
        lataccel[:CONTROL_START] = target[:CONTROL_START]
        tokens = np.zeros(length + 1, np.int64)
        tokens[:CONTROL_START] = encode(lataccel[:CONTROL_START])
        errors = np.diff(target[CONTEXT - 1 : CONTROL_START])
        return cls(
            path=route.path,
            length=length,
            states=states,
            tokens=tokens,
            lataccel=lataccel,
            target=target,
            speed=speed,
            curvature=curvature,
            ahead=np.concatenate([curvature[:-1], np.zeros(1 + AHEAD)]),
            draws=_draws(seed, length),
            error=float(errors[-1]),
            # One after the other, as a controller adds them up.
            error_sum=float(errors.cumsum()[-1]),
        )


def _draws(seed: int, length: int) -> Floats:
    """One per row from CONTEXT on, as numpy's old global generator draws them."""
    drawn = np.random.RandomState(seed).random_sample(length - CONTEXT)
    return np.concatenate([np.zeros(CONTEXT), drawn, np.zeros(1)])


def _and_last(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([values, values[-1:]])
