"""The paths of routes, and the order in which slots drive them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from corral.errors import OptionError
from corral.zoo.tinyphysics.route import Route, read_route
from corral.zoo.tinyphysics.synthetic import SYNTHETIC, synthetic_paths, synthetic_route


def find_routes(data: str | Sequence[str] | None = None) -> list[str]:
    """Return the paths of routes, spelled as in the argument.

    Args:
        data: a directory of CSV files, one such file, or a list of paths (default:
            synthetic routes).
    """
    if data is None:
        return synthetic_paths()
    if not isinstance(data, (str, os.PathLike)):
        return _some([os.fspath(path) for path in data], "an empty list")
    place = os.fspath(data)
    if os.path.isfile(place) or place.startswith(SYNTHETIC):
        return [place]
    try:
        names = sorted(os.listdir(place))
    except OSError as error:
        raise OptionError(
            f"the directory of routes {place} cannot be read: {error.strerror}"
        ) from None
    # Joined, not normalised: the spelling of a path seeds its route.
    paths = [os.path.join(place, name) for name in names if name.endswith(".csv")]
    return _some(paths, place)


def _some(paths: list[str], place: str) -> list[str]:
    if not paths:
        raise OptionError(f"no routes in {place}: expected files NAME.csv")
    return paths


def load_route(path: str) -> Route:
    """Read the route of this path, or make it if it is a synthetic one."""
    if path.startswith(SYNTHETIC):
        return synthetic_route(path)
    return read_route(path)


class RouteOrder:
    """Episode k of slot i drives route permutation[k * num_envs + i].

    So no route is driven twice before all have been driven once; then another
    permutation follows. Use it as a pool's `sample_task`::

        order = RouteOrder(find_routes("data"), num_envs=8)
        pool = corral.Pool(make_tinyphysics, 8, sample_task=order)

    Args:
        paths: paths of the routes.
        num_envs: number of slots in all.
        shuffle: seed of the permutations; None keeps the order of the paths.
    """

    def __init__(
        self, paths: Sequence[str], num_envs: int = 1, shuffle: int | None = 0
    ) -> None:
        if num_envs < 1:
            raise OptionError(f"num_envs is {num_envs}; it must be >= 1")
        self.paths = _some(list(paths), "an empty list")
        self.num_envs = num_envs
        self.shuffle = shuffle

    def path(self, slot: int, episode: int) -> str:
        """The route of an episode."""
        turn, place = divmod(episode * self.num_envs + slot, len(self.paths))
        if self.shuffle is None:
            return self.paths[place]
        return self.paths[_permutation(self.shuffle, turn, len(self.paths))[place]]

    def __call__(self, slot: int, episode: int, rng: Any = None) -> dict[str, str]:
        """The task of an episode: its route."""
        return {"route": self.path(slot, episode)}


@lru_cache(maxsize=4)
def _permutation(seed: int, turn: int, count: int) -> list[int]:
    generator = np.random.default_rng((seed, turn))
    order: list[int] = generator.permutation(count).tolist()
    return order


class RouteRequest(NamedTuple):
    """The options or the task of a reset."""

    route: str | None = None
    """The path of a route; None for the next one."""
    trace: bool = False
    """Whether the last info has a trace."""


def request_of(options: dict[str, Any] | None) -> RouteRequest:
    """Read `route` and `trace` from the options of a reset, or from its task."""
    given = options or {}
    task = given.get("task")
    named: dict[str, Any] = task if isinstance(task, dict) else {"route": task}
    route = given.get("route", named.get("route"))
    unknown = named.keys() - RouteRequest._fields
    if unknown or not isinstance(route, (str, os.PathLike, type(None))):
        raise OptionError(
            f'name a route by its path, as in {{"route": "data/00000.csv"}}; '
            f"got {task if unknown else route!r:.80}"
        )
    trace = bool(given.get("trace", named.get("trace")))
    return RouteRequest(None if route is None else os.fspath(route), trace)
