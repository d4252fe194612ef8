"""The baseline: a PID controller of the lateral acceleration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, Generators, Step
from corral.zoo.tinyphysics.track import OBS_SCALE, STEER_LIMIT

BY_ERROR, BY_SUM, BY_CHANGE = 0.195, 0.100, -0.053


class PID:
    """Steers by the error, its sum and its change.

    Equal to the official controller bit for bit, if observations are float64.

    Args:
        scaled: whether observations are multiplied with OBS_SCALE.
    """

    def __init__(self, scaled: bool = False) -> None:
        self._scaled = scaled

    def act(
        self, step: Step, carry: Any = None, rng: Generators | None = None
    ) -> Decision:
        """Steer every slot."""
        return Decision(steer_of_pid(step.obs, self._scaled))


def steer_of_pid(shown: NDArray[Any], scaled: bool = False) -> NDArray[np.float32]:
    """The steers of the controller, (rows, 1), for observations of TinyPhysicsEnv."""
    scale = OBS_SCALE[:3] if scaled else np.ones(3)
    seen = np.asarray(shown[:, :3], np.float64) / scale
    error, change, total = seen[:, 0], seen[:, 1], seen[:, 2]
    steer = BY_ERROR * error + BY_SUM * total + BY_CHANGE * change
    steer = np.clip(steer, -STEER_LIMIT, STEER_LIMIT)
    return np.asarray(steer[:, None], np.float32)
