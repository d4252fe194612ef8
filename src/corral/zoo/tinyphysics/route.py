"""A drive to follow: what the car did and what was asked of it, ten rows a second.

    t,vEgo,aEgo,roll,targetLateralAcceleration,steerCommand
    0.0,33.77,-0.017,0.0374,1.0038,-0.3297

`steerCommand` is needed for the first CONTROL_START rows alone, where the car is driven
as it was; from there on a controller steers.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError

CONTEXT = 20
"""Rows that the model sees; the simulation starts behind the first so many."""
CONTROL_START = 100
"""From this row on a controller steers."""
COST_END = 500
"""The row behind the last one that counts."""
GRAVITY = 9.81
LARGEST = float(np.finfo(np.float32).max)
"""The model counts in float32."""
COLUMNS = ("vEgo", "aEgo", "roll", "targetLateralAcceleration", "steerCommand")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Route:
    """One drive; arrays of one row per tenth of a second."""

    path: str
    """As it was spelled: that is what seeds it."""
    roll_lataccel: Floats
    """What gravity does to the car on a tilted road, m/s²."""
    v_ego: Floats
    a_ego: Floats
    target: Floats
    """The lateral acceleration that is asked for, m/s²."""
    steer: Floats
    """(CONTROL_START,): how it was steered, to the right."""

    def __len__(self) -> int:
        return len(self.target)

    @property
    def seed(self) -> int:
        """What the simulation's draws are seeded with: a number made of the path."""
        digest = hashlib.md5(self.path.encode(), usedforsecurity=False).hexdigest()
        return int(digest, 16) % 10_000


def read_route(path: str) -> Route:
    """Read a CSV file; whatever is wrong with it is said with file, column and row."""
    named = _columns(path, _lines(path))
    roll = np.sin(named["roll"]) * GRAVITY
    return Route(
        path=path,
        roll_lataccel=roll,
        v_ego=named["vEgo"],
        a_ego=named["aEgo"],
        target=named["targetLateralAcceleration"],
        # Logged to the left; the model steers to the right.
        steer=-named["steerCommand"],
    )


def _lines(path: str) -> list[list[str]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            return [line for line in csv.reader(file) if line]
    except OSError as error:
        raise OptionError(
            f"the route {path} cannot be read: {error.strerror}; expected a CSV file "
            f"with the columns {', '.join(COLUMNS)}"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise OptionError(f"the route {path} is no CSV file: {error}") from None


def _columns(path: str, lines: list[list[str]]) -> dict[str, Floats]:
    header = [name.strip() for name in lines[0]] if lines else []
    for name in COLUMNS:
        if name not in header:
            raise OptionError(
                f"the route {path} has no column {name}; expected "
                f"{', '.join(COLUMNS)}, found {', '.join(header) or 'nothing'}"
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


def _numbers(path: str, name: str, rows: Sequence[list[str]], column: int) -> Floats:
    try:
        values = np.array([float(row[column]) for row in rows])
    except (ValueError, IndexError):
        values = None
    if values is None or not (np.abs(values) <= LARGEST).all():
        number, text = next(_bad(rows, column))
        raise OptionError(
            f"the route {path}, column {name}, row {number}: expected a finite number, "
            f"found {text!r:.80}"
        )
    return values


def _bad(rows: Sequence[list[str]], column: int) -> Iterator[tuple[int, str]]:
    """Rows, counted from 0, that have no finite number there."""
    for number, row in enumerate(rows):
        text = row[column] if column < len(row) else ""
        try:
            fine = abs(float(text)) <= LARGEST
        except ValueError:
            fine = False
        if not fine:
            yield number, text
