"""A recorded drive with its target lateral acceleration, ten rows a second.

    t,vEgo,aEgo,roll,targetLateralAcceleration,steerCommand
    0.0,33.77,-0.017,0.0374,1.0038,-0.3297

`steerCommand` is needed for the first CONTROL_START rows only; from there on a
controller steers.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError

CONTEXT = 20
"""Rows in the model's input; the simulation starts after them."""
CONTROL_START = 100
"""From this row on a controller steers."""
COST_END = 500
"""The row after the last one that counts."""
GRAVITY = 9.81
LARGEST = float(np.finfo(np.float32).max)
"""The model computes in float32."""
COLUMNS = ("vEgo", "aEgo", "roll", "targetLateralAcceleration", "steerCommand")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Route:
    """One drive; arrays of one row per tenth of a second."""

    path: str
    """As the user spelled it: it seeds the simulation."""
    roll_lataccel: Floats
    """Lateral acceleration by gravity on a tilted road, m/s²."""
    v_ego: Floats
    a_ego: Floats
    target: Floats
    """The target lateral acceleration, m/s²."""
    steer: Floats
    """(CONTROL_START,): the recorded steer; positive is to the right."""

    def __len__(self) -> int:
        return len(self.target)

    @property
    def seed(self) -> int:
        """The seed of the simulation's draws: a hash of the path."""
        digest = hashlib.md5(self.path.encode(), usedforsecurity=False).hexdigest()
        return int(digest, 16) % 10_000


def read_route(path: str) -> Route:
    """Read a CSV file; errors name the file, column and row."""
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
        raise OptionError(f"the route {path} is not a CSV file: {error}") from None


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
    values = []
    for number, row in enumerate(rows):
        text = row[column] if column < len(row) else ""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not abs(value) <= LARGEST:
            raise OptionError(
                f"the route {path}, column {name}, row {number}: expected a finite "
                f"number, found {text!r:.80}"
            )
        values.append(value)
    return np.array(values)
