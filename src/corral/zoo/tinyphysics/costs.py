"""The cost of a drive: lateral acceleration error, and jerk."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.zoo.tinyphysics.route import CONTROL_START, COST_END, Floats

# Seconds from row to row.
STEP = 0.1
# Weight of the lateral acceleration cost; that of jerk is 1.
WEIGHT = 50.0
PERCENT = 100.0
_Number = TypeVar("_Number", float, Floats)


class Costs(NamedTuple):
    """The costs of one route; lower is better."""

    lataccel: float
    jerk: float
    total: float


def costs(target: Floats, lataccel: Floats) -> Costs:
    """The costs over rows CONTROL_START to COST_END - 1."""
    wanted = target[CONTROL_START:COST_END]
    actual = lataccel[CONTROL_START:COST_END]
    off = float(np.mean((wanted - actual) ** 2) * PERCENT)
    rough = float(np.mean((np.diff(actual) / STEP) ** 2) * PERCENT)
    return Costs(off, rough, off * WEIGHT + rough)


def cost_info(
    path: str, target: Floats, lataccel: Floats, states: NDArray[Any], trace: bool
) -> dict[str, Any]:
    """The last info of a route; a trace has targets, lataccels and steers."""
    info = {"route": path, "episode_cost": costs(target, lataccel)._asdict()}
    if trace:
        counted = slice(CONTROL_START, COST_END)
        columns = (target[counted], lataccel[counted], states[counted, 0])
        info["trace"] = np.column_stack(columns)
    return info


def reward(error: _Number, change: _Number) -> _Number:
    """The negative contribution of one row to the costs.

    Args:
        error: target - lataccel, of the row after the action.
        change: of the lataccel since the row before; 0 for the first row that counts.
    """
    jerk = change / STEP
    # Products: a power may round differently for one number than for an array.
    return -(WEIGHT * (error * error) + jerk * jerk) / PERCENT
