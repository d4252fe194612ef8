"""A gymnasium.Env, driven with sampled actions."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
from gymnasium import Space

from corral.engine.worker.step_results import counted, five_of
from corral.tools.doctor.env_response import EnvResponse


class GymnasiumDriver:
    """One agent, under the name ""."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int) -> None:
        self.env = env
        self.observation_spaces: dict[str, Space[Any]] = {"": env.observation_space}
        self.action_spaces: dict[str, Space[Any]] = {"": env.action_space}
        # A copy: the env's own must not notice that somebody draws.
        self._actions = copy.deepcopy(env.action_space)
        self._actions.seed(seed)

    def reset(self, seed: int | None, what: str) -> EnvResponse:
        """Start an episode."""
        result = self.env.reset() if seed is None else self.env.reset(seed=seed)
        try:
            obs, info = result
        except (TypeError, ValueError):
            raise TypeError(
                f"reset() returned {counted(result)}, not an observation and an info"
            ) from None
        return EnvResponse(what, obs, 0.0, False, False, info, False)

    def draw(self) -> Any:
        """An action of the space."""
        return self._actions.sample()

    def step(self, drawn: Any, what: str) -> EnvResponse:
        """Take it."""
        obs, reward, terminated, truncated, info = five_of(self.env.step(drawn))
        over = bool(terminated) or bool(truncated)
        return EnvResponse(what, obs, reward, terminated, truncated, info, over)
