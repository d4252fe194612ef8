"""The next route of each slot, and its random draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from gymnasium.utils.seeding import np_random

from corral.errors import OptionError
from corral.zoo.tinyphysics.routes import RouteOrder, find_routes, load_route
from corral.zoo.tinyphysics.track import Track

NOISES = ("route", "episode")
ROADS = ("curvature", "lataccel")


class Drives:
    """Starts the episodes of `count` cars.

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
        road: see TinyPhysicsEnv.
    """

    def __init__(
        self,
        routes: str | Sequence[str] | None,
        count: int,
        slots: Sequence[int] | None,
        total: int,
        shuffle: int | None,
        noise: str,
        road: str = "curvature",
    ) -> None:
        if noise not in NOISES:
            raise OptionError(f"noise is {noise!r}; choose one of {', '.join(NOISES)}")
        if road not in ROADS:
            raise OptionError(f"road is {road!r}; choose one of {', '.join(ROADS)}")
        if slots is not None and not all(0 <= slot < total for slot in slots):
            raise OptionError(
                f"slots are {list(slots)}, but there are {total} in all; they must be "
                f"from 0 to {total - 1}"
            )
        self._order = RouteOrder(find_routes(routes), total, shuffle)
        self._slots = slots
        self._noise = noise
        self._road = road
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
        generator = self._generator(place, seed)
        path = self._next(place, generator) if asked is None else asked
        route = load_route(path)
        if self._noise == "route":
            return Track.of(route, route.seed, self._road)
        return Track.of(route, int(generator.integers(2**32)), self._road)

    def _next(self, place: int, generator: np.random.Generator) -> str:
        order = self._order
        if self._slots is None:
            return order.paths[int(generator.integers(len(order.paths)))]
        episode = self._episodes[place]
        self._episodes[place] += 1
        return order.path(self._slots[place], episode)

    def _generator(self, place: int, seed: int | None) -> np.random.Generator:
        generator = self._generators[place]
        if generator is None or seed is not None:
            generator = self._generators[place] = np_random(seed)[0]
        return generator
