"""A route after its warm-up, ready for a controller.

In rows CONTEXT to CONTROL_START the car follows the target exactly. The model's output
for these rows is never used, so it is not computed; their random draws are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils.seeding import np_random
from numpy.typing import NDArray

from corral.engine.keywords import check_choice
from corral.errors import OptionError
from corral.zoo.tinyphysics.route import (
    CONTEXT,
    CONTROL_START,
    COST_END,
    Floats,
    Route,
    RouteOrder,
    find_routes,
    load_route,
)
from corral.zoo.tinyphysics.tokens import encode

STEER_LIMIT = 2.0
# Of the lateral acceleration from row to row, m/s².
LARGEST_CHANGE = 0.5
# Rows of the road ahead in an observation.
AHEAD = 49


@dataclass(frozen=True, slots=True)
class Track:
    """Arrays of `length` rows, and the last row again, for the last observation.

    Attributes:
        states: (rows, 4): steer, roll lataccel, speed, acceleration; the env adds
            steers.
        lataccel: Of the car; the env adds the rows that it drives.
        curvature: Of the target.
        ahead: (length + 1 + AHEAD,): the same, 0 after the end.
        draws: The random number for the token of row i.
        error: Target minus lataccel before row CONTROL_START - 1.
        error_sum: Sum of the errors from row CONTEXT to there.
    """

    path: str
    length: int
    states: NDArray[np.float32]
    tokens: NDArray[np.int64]
    lataccel: Floats
    target: Floats
    speed: Floats
    curvature: Floats
    ahead: Floats
    draws: Floats
    error: float
    error_sum: float

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
        drawn = np.random.RandomState(seed).random_sample(length - CONTEXT)
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
            # As `np.random.seed` and `rand` give them.
            draws=np.concatenate([np.zeros(CONTEXT), drawn, np.zeros(1)]),
            error=float(errors[-1]),
            # In sequence, as a controller adds them up.
            error_sum=float(errors.cumsum()[-1]),
        )


def _and_last(values: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([values, values[-1:]])


FIRST_AHEAD = 6
SIZE = 56
# Factors that give all numbers a similar size.
OBS_SCALE = np.full(SIZE, 1000.0)
OBS_SCALE[:FIRST_AHEAD] = 10.0, 1.0, 0.1, 2.0, 0.03, 1000.0
LOOKING_AHEAD = slice(FIRST_AHEAD, FIRST_AHEAD + AHEAD)


class Drives:
    """What one car and many cars have in common: starts of episodes, observations.

    A reset that names a route gets it. Otherwise slots take routes in turn
    (`RouteOrder`) if their indices are known; if not, the reset's seed chooses one.

    Args:
        routes: see `find_routes`.
        count: number of cars.
        slots: their indices among all slots, if known.
        total: number of slots in all.
        shuffle: see `RouteOrder`.
        noise: seed of the draws: "route", the spelling of the path, as for the official
            costs; "episode", the reset's seed, so that every visit differs.
        road: see TinyPhysicsEnv, as for the others.
        dtype: of observations.
        scaled: whether observations are scaled.
        limit: where observations are clipped, if anywhere.
        error_sum_limit: where the error's sum is clipped.
        whole_route: whether episodes last to the end of the file.
    """

    def __init__(
        self,
        routes: str | Sequence[str] | None,
        count: int,
        slots: Sequence[int] | None,
        total: int,
        *,
        shuffle: int | None,
        noise: str,
        road: str,
        dtype: str,
        scaled: bool,
        limit: float | None,
        error_sum_limit: float,
        whole_route: bool,
    ) -> None:
        check_choice("noise", noise, ("route", "episode"))
        check_choice("road", road, ("curvature", "lataccel"))
        check_choice("dtype", dtype, ("float32", "float64"))
        if slots is not None and not all(0 <= slot < total for slot in slots):
            raise OptionError(
                f"slots are {list(slots)}, but there are {total} in all; they must be "
                f"from 0 to {total - 1}"
            )
        self._order = RouteOrder(find_routes(routes), total, shuffle)
        self._slots = slots
        self._noise = noise
        self.road = road
        self._dtype = np.dtype(dtype)
        self._scaled = scaled
        self._limit = limit
        self.error_sum_limit = error_sum_limit
        self._whole_route = whole_route
        self._episodes = [0] * count
        self._generators: list[np.random.Generator | None] = [None] * count

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Undo the turns of several cars if one of them cannot start."""
        episodes, generators = list(self._episodes), list(self._generators)
        try:
            yield
        except BaseException:
            self._episodes, self._generators = episodes, generators
            raise

    def begin(self, place: int, seed: int | None, asked: str | None) -> Track:
        """Start the next episode of a car."""
        generator = self._generators[place]
        if generator is None or seed is not None:
            generator = self._generators[place] = np_random(seed)[0]
        path = self._next(place, generator) if asked is None else asked
        route = load_route(path)
        own = self._noise == "route"
        draws = route.seed if own else int(generator.integers(2**32))
        return Track.of(route, draws, self.road)

    def _next(self, place: int, generator: np.random.Generator) -> str:
        order = self._order
        if self._slots is None:
            return order.paths[int(generator.integers(len(order.paths)))]
        self._episodes[place] += 1
        return order.path(self._slots[place], self._episodes[place] - 1)

    def end_of(self, track: Track) -> int:
        """The row after the last one of an episode."""
        return track.length if self._whole_route else COST_END

    def spaces(self) -> tuple[Box, Box]:
        """Observations, and the steer; positive is to the right."""
        most = np.inf if self._limit is None else self._limit
        seen = Box(-most, most, (SIZE,), self._dtype.type)
        return seen, Box(-STEER_LIMIT, STEER_LIMIT, (1,), np.float32)

    def shown(self, seen: NDArray[np.float64]) -> NDArray[Any]:
        """The observation that the env returns: a copy, scaled if asked for."""
        shown = seen * OBS_SCALE if self._scaled else seen
        if self._limit is not None:
            shown = np.clip(shown, -self._limit, self._limit)
        return shown.astype(self._dtype)
