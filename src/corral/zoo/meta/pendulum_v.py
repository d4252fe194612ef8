"""Pendulum-v1 of which only the velocity is seen: it has to be swung up from memory."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

VELOCITY = slice(2, 3)


class VelocityOnly(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Keeps the velocity of the pendulum's three numbers."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        whole = env.observation_space
        assert isinstance(whole, gymnasium.spaces.Box)
        low, high = whole.low[VELOCITY], whole.high[VELOCITY]
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Hide the angle."""
        return observation[VELOCITY]


def make(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make Pendulum-v1 without its angle."""
    return VelocityOnly(gymnasium.make("Pendulum-v1", render_mode=render_mode))
