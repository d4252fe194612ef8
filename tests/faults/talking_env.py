"""An env whose infos are text, which travels in letters."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Talker(gymnasium.Env[Any, Any]):
    """Says its action, unless that is 0; shows the last one and its options."""

    observation_space = gymnasium.spaces.Box(0, 99, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(100)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._goal = (options or {}).get("goal", 0)
        return np.array([0.0, self._goal]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 66:
            raise ValueError("66")
        info = {"said": str(action)} if action else {}
        return np.array([float(action), self._goal]), 0.0, False, False, info

    def echo(self, value: Any) -> Any:
        """What it was given."""
        return value
