"""A recorded drive with its target lateral acceleration, ten rows a second.

    t,vEgo,aEgo,roll,targetLateralAcceleration,steerCommand
    0.0,33.77,-0.017,0.0374,1.0038,-0.3297

`steerCommand` is needed for the first CONTROL_START rows only; from there on a
controller steers.
"""

from __future__ import annotations

import csv
import hashlib
import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corral.engine.parallel_map import map as parallel_map
from corral.engine.worker.seeds import route_order
from corral.errors import OptionError

# Rows in the model's input; the simulation starts after them.
CONTEXT = 20
# From this row on a controller steers.
CONTROL_START = 100
# The row after the last one that counts.
COST_END = 500
GRAVITY = 9.81
# The model computes in float32.
LARGEST = float(np.finfo(np.float32).max)
COLUMNS = ("vEgo", "aEgo", "roll", "targetLateralAcceleration", "steerCommand")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Route:
    """One drive; arrays of one row per tenth of a second.

    Attributes:
        path: As the user spelled it: it seeds the simulation.
        roll_lataccel: Lateral acceleration by gravity on a tilted road, m/s².
        target: The target lateral acceleration, m/s².
        steer: (CONTROL_START,): the recorded steer; positive is to the right.
    """

    path: str
    roll_lataccel: Floats
    v_ego: Floats
    a_ego: Floats
    target: Floats
    steer: Floats

    def __len__(self) -> int:
        return len(self.target)

    @property
    def seed(self) -> int:
        """The seed of the simulation's draws: a hash of the path."""
        digest = hashlib.md5(self.path.encode(), usedforsecurity=False).hexdigest()
        return int(digest, 16) % 10_000


def read_route(path: str) -> Route:
    """Read a CSV file; errors name the file, line, column and row."""
    named = _columns(path, _lines(path))
    return Route(
        path=path,
        roll_lataccel=np.sin(named["roll"]) * GRAVITY,
        v_ego=named["vEgo"],
        a_ego=named["aEgo"],
        target=named["targetLateralAcceleration"],
        # Logged to the left; the model steers to the right.
        steer=-named["steerCommand"],
    )


class Line(NamedTuple):
    """A line that is not empty, and its number, from 1 on."""

    number: int
    cells: list[str]


def _lines(path: str) -> list[Line]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            return [Line(reader.line_num, cells) for cells in reader if cells]
    except OSError as error:
        raise OptionError(
            f"the route {path} cannot be read: {error.strerror}; expected a CSV file "
            f"with the columns {', '.join(COLUMNS)}"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise OptionError(f"the route {path} is not a CSV file: {error}") from None


def _columns(path: str, lines: list[Line]) -> dict[str, Floats]:
    header = [name.strip() for name in lines[0].cells] if lines else []
    for name in COLUMNS:
        if name not in header:
            found = ", ".join(header) or "nothing"
            shown = found if found.isprintable() else repr(found)
            raise OptionError(
                f"the route {path} has no column {name}; expected "
                f"{', '.join(COLUMNS)}, found {shown:.200}"
            )
    rows = lines[1:]
    if len(rows) < COST_END:
        raise OptionError(
            f"the route {path} is too short: expected at least {COST_END} rows, since "
            f"rows {CONTROL_START} to {COST_END - 1} count, found {len(rows)}"
        )
    counts = {name: len(rows) for name in COLUMNS} | {"steerCommand": CONTROL_START}
    return {
        name: _numbers(path, name, rows[:count], header.index(name))
        for name, count in counts.items()
    }


def _numbers(path: str, name: str, rows: Sequence[Line], column: int) -> Floats:
    values = []
    for number, (line, cells) in enumerate(rows):
        text = cells[column] if column < len(cells) else ""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not abs(value) <= LARGEST:
            raise OptionError(
                f"the route {path}, line {line}, column {name}, row {number}: expected "
                f"a finite number, found {text!r:.80}"
            )
        values.append(value)
    return np.array(values)


SYNTHETIC = "synthetic:"
# Lateral acceleration that a steer of 1 leads to, m/s².
GAIN = 1.5
COUNT, ROWS = 100, 600
# Seconds from row to row.
STEP = 0.1


def synthetic_route(path: str) -> Route:
    """Make the route of this path; it is the same on every machine."""
    digits = path.removeprefix(SYNTHETIC)
    if not digits.isdecimal():
        raise OptionError(
            f"{path!r} is not a synthetic route; use {SYNTHETIC}00000 and so on"
        )
    # RandomState: numpy guarantees that its numbers never change.
    random = np.random.RandomState(int(digits) % 2**32)
    speed = random.uniform(8.0, 34.0) + _wandering(random, 1.5, 40.0)
    v_ego = np.maximum(speed, 1.0)
    roll = np.arcsin(_wandering(random, 0.02, 20.0))
    roll_lataccel = np.sin(roll) * GRAVITY
    target = _wandering(random, random.uniform(0.1, 0.6), 16.0)
    return Route(
        path=path,
        roll_lataccel=roll_lataccel,
        v_ego=v_ego,
        a_ego=np.gradient(v_ego, STEP),
        target=target,
        steer=((target - roll_lataccel) / GAIN)[:CONTROL_START],
    )


def _wandering(random: np.random.RandomState, size: float, period: float) -> Floats:
    """A smooth line around 0: six waves, the shortest with a third of the period."""
    seconds = STEP * np.arange(ROWS)
    lengths = period * random.uniform(1 / 3, 3.0, 6)
    phases = random.uniform(0.0, 2 * math.pi, 6)
    waves = np.sin(2 * math.pi * seconds[:, None] / lengths + phases)
    line: Floats = size * waves.mean(axis=1) * math.sqrt(12.0)
    return line


def write_route(route: Route, path: str | os.PathLike[str]) -> None:
    """Write a route as a CSV file, in the format of recorded routes."""
    times = STEP * np.arange(len(route))
    roll = np.arcsin(route.roll_lataccel / GRAVITY)
    values = (times, route.v_ego, route.a_ego, roll, route.target, -route.steer)
    columns = (column.tolist() for column in values)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["t", *COLUMNS])
        writer.writerows(itertools.zip_longest(*columns, fillvalue=""))


def find_routes(data: str | Sequence[str] | None = None) -> list[str]:
    """Return the paths of routes, spelled as in the argument.

    Args:
        data: a directory of CSV files, one such file, or a list of paths (default:
            synthetic routes).
    """
    if data is None:
        return [f"{SYNTHETIC}{number:05d}" for number in range(COUNT)]
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
    return (synthetic_route if path.startswith(SYNTHETIC) else read_route)(path)


# From so many files on, workers read them: they take half a second to start.
MANY, CHUNK = 1000, 100
# At most so many are named.
NAMED = 5


def check_routes(paths: Sequence[str]) -> None:
    """Read all routes, and raise one OptionError that names the damaged ones."""
    files = [path for path in paths if not path.startswith(SYNTHETIC)]
    parts = [files[at : at + CHUNK] for at in range(0, len(files), CHUNK)]
    found = (
        map(damage_of, parts) if len(files) < MANY else parallel_map(damage_of, parts)
    )
    damage = [said for part in found for said in part]
    if not damage:
        return
    more = len(damage) - NAMED
    raise OptionError(
        f"{len(damage)} of {len(paths)} routes cannot be driven; repair the files or "
        "remove them from the directory:\n"
        + "\n".join(f"  {said}" for said in damage[:NAMED])
        + (f"\n  and {more} more" if more > 0 else "")
    )


def damage_of(paths: Sequence[str]) -> list[str]:
    """What is wrong with each of these routes that cannot be driven."""
    found = []
    for path in paths:
        try:
            load_route(path)
        except OptionError as error:
            found.append(str(error))
    return found


class RouteOrder:
    """Episode k of slot i drives route permutation[first + k * num_envs + i].

    So no route is driven twice before all have been driven once; then another
    permutation follows. Use it as a pool's `sample_task`::

        order = RouteOrder(find_routes("data"), num_envs=8)
        pool = corral.Pool(make_tinyphysics, 8, sample_task=order)

    Args:
        paths: paths of the routes.
        num_envs: number of slots in all.
        shuffle: seed of the permutations; None keeps the order of the paths.
        first: number of routes that were driven before, in this order.
    """

    def __init__(
        self,
        paths: Sequence[str],
        num_envs: int = 1,
        shuffle: int | None = 0,
        first: int = 0,
    ) -> None:
        if num_envs < 1:
            raise OptionError(f"num_envs is {num_envs}; it must be >= 1")
        self.paths = _some(list(paths), "an empty list")
        self.num_envs = num_envs
        self.shuffle = shuffle
        self.first = first

    def path(self, slot: int, episode: int) -> str:
        """The route of an episode."""
        number = self.first + episode * self.num_envs + slot
        turn, place = divmod(number, len(self.paths))
        if self.shuffle is None:
            return self.paths[place]
        return self.paths[_permutation(self.shuffle, turn, len(self.paths))[place]]

    def __call__(self, slot: int, episode: int, rng: Any = None) -> dict[str, str]:
        """The task of an episode: its route."""
        return {"route": self.path(slot, episode)}


@lru_cache(maxsize=4)
def _permutation(seed: int, turn: int, count: int) -> list[int]:
    order: list[int] = route_order(seed, turn).permutation(count).tolist()
    return order


def request_of(options: dict[str, Any] | None) -> tuple[str | None, bool]:
    """Read the options of a reset, or its task.

    Returns:
        The path of a route, None for the next one; whether the last info has a trace.
    """
    given = options or {}
    task = given.get("task")
    named: dict[str, Any] = task if isinstance(task, dict) else {"route": task}
    route = given.get("route", named.get("route"))
    unknown = named.keys() - {"route", "trace"}
    if unknown or not isinstance(route, (str, os.PathLike, type(None))):
        raise OptionError(
            f'name a route by its path, as in {{"route": "data/00000.csv"}}; '
            f"got {task if unknown else route!r:.80}"
        )
    trace = bool(given.get("trace", named.get("trace")))
    return None if route is None else os.fspath(route), trace
