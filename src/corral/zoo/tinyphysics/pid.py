"""The baseline: a PID controller of the lateral acceleration."""

from __future__ import annotations

from typing import Any

import numpy as np

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
        self._scale = OBS_SCALE[:3] if scaled else np.ones(3)

    def act(
        self, step: Step, carry: Any = None, rng: Generators | None = None
    ) -> Decision:
        """Steer every slot."""
        seen = np.asarray(step.obs[:, :3], np.float64) / self._scale
        error, change, total = seen[:, 0], seen[:, 1], seen[:, 2]
        steer = BY_ERROR * error + BY_SUM * total + BY_CHANGE * change
        steer = np.clip(steer, -STEER_LIMIT, STEER_LIMIT)
        return Decision(steer[:, None].astype(np.float32))
