"""Generated routes, for machines without the recorded ones.

synthetic:00000, synthetic:00001, ...      the number seeds the route
"""

from __future__ import annotations

import csv
import math
import os

import numpy as np

from corral.errors import OptionError
from corral.zoo.tinyphysics.route import COLUMNS, CONTROL_START, GRAVITY, Floats, Route

SYNTHETIC = "synthetic:"
GAIN = 1.5
"""Lateral acceleration that a steer of 1 leads to, m/s²."""
COUNT, ROWS = 100, 600
STEP = 0.1
"""Seconds from row to row."""


def synthetic_paths(count: int = COUNT) -> list[str]:
    """The paths of the first `count` routes."""
    return [f"{SYNTHETIC}{number:05d}" for number in range(count)]


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
    steer = [repr(float(-value)) for value in route.steer]
    steer += [""] * (len(route) - len(steer))
    roll = np.arcsin(route.roll_lataccel / GRAVITY)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["t", *COLUMNS])
        for row, wheel in enumerate(steer):
            values = (route.v_ego, route.a_ego, roll, route.target)
            numbers = [repr(float(value[row])) for value in values]
            writer.writerow([repr(STEP * row), *numbers, wheel])
