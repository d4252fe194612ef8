"""CartPole that shows positions and hides velocities: its env, and recipe `memory`.

One observation does not show where the pole is moving; two do. A policy without memory
balances it for about fifty steps, a recurrent one until the time limit.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

# The position of the cart, and the angle of the pole.
POSITIONS = [0, 2]


class ShownPart(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Keeps some numbers of an observation, and hides the others."""

    def __init__(self, env: gymnasium.Env[Any, Any], shown: list[int]) -> None:
        super().__init__(env)
        whole = env.observation_space
        assert isinstance(whole, gymnasium.spaces.Box)
        low, high = whole.low[shown], whole.high[shown]
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)
        self._shown = shown

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Hide the others."""
        return observation[self._shown]


def make(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make CartPole-v1 without velocities."""
    return ShownPart(gymnasium.make("CartPole-v1", render_mode=render_mode), POSITIONS)
