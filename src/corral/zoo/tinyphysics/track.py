"""A route after its warm-up, ready for a controller.

In rows CONTEXT to CONTROL_START the car follows the target exactly. The model's output
for these rows is never used, so it is not computed; their random draws are made.
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
"""Rows of the road ahead in an observation."""


@dataclass(frozen=True, slots=True)
class Track:
    """Arrays of `length` rows, and the last row again, for the last observation."""

    path: str
    length: int
    states: NDArray[np.float32]
    """(rows, 4): steer, roll lataccel, speed, acceleration; the env adds steers."""
    tokens: NDArray[np.int64]
    lataccel: Floats
    """Of the car; the env adds the rows that it drives."""
    target: Floats
    speed: Floats
    curvature: Floats
    """Of the target."""
    ahead: Floats
    """(length + 1 + AHEAD,): the same, 0 after the end."""
    draws: Floats
    """The random number for the token of row i."""
    error: float
    """Target minus lataccel before row CONTROL_START - 1."""
    error_sum: float
    """Sum of the errors from row CONTEXT to there."""

    @classmethod
    def of(cls, route: Route, seed: int, road: str = "curvature") -> Track:
        """Drive a route up to CONTROL_START.

        Args:
            route: the route.
            seed: seed of the draws.
            road: the meaning of `curvature` and `ahead`: see TinyPhysicsEnv.
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
            # In sequence, as a controller adds them up.
            error_sum=float(errors.cumsum()[-1]),
        )


def _draws(seed: int, length: int) -> Floats:
    """One number per row from CONTEXT on, as `np.random.seed` and `rand` give them."""
    drawn = np.random.RandomState(seed).random_sample(length - CONTEXT)
    return np.concatenate([np.zeros(CONTEXT), drawn, np.zeros(1)])


def _and_last(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([values, values[-1:]])
