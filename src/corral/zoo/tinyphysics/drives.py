"""Which route each slot drives next, and with which draws."""

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
    """Begins one episode after the other, in each of its places.

    A reset that names a route gets that one. Others drive by turns (`RouteOrder`) where
    the slots are known; where they are not, a route is drawn from the reset's seed.

    Args:
        routes: see `find_routes`.
        count: how many places.
        slots: their numbers among all slots, where they are known.
        total: how many slots there are in all.
        shuffle: see `RouteOrder`.
        noise: what seeds the draws: "route", its path's spelling, as the official costs
            are made; "episode", the reset's seed, so that no two visits are alike.
        road: what is told of the road: "curvature" or "lataccel".
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
                f"slots are {list(slots)}, of {total} in all; they must be below that"
            )
        self._order = RouteOrder(find_routes(routes), total, shuffle)
        self._slots = slots
        self._noise = noise
        self._road = road
        self._episodes = [0] * count
        self._generators: list[np.random.Generator | None] = [None] * count

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Give the turns of several places back if one of them cannot begin."""
        episodes, generators = list(self._episodes), list(self._generators)
        try:
            yield
        except BaseException:
            self._episodes, self._generators = episodes, generators
            raise

    def begin(self, place: int, seed: int | None, asked: str | None) -> Track:
        """The next episode of that place."""
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
