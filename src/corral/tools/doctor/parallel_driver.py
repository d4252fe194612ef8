"""A PettingZoo ParallelEnv, driven with sampled actions."""

from __future__ import annotations

from typing import Any

from corral.engine.worker.step_results import counted, five_of
from corral.tools.doctor.env_response import EnvResponse
from corral.tools.doctor.sampling_agents import SamplingAgents


class ParallelDriver:
    """All living agents act at once."""

    def __init__(self, env: Any, seed: int) -> None:
        self.env = env
        self._agents = SamplingAgents(env, seed)
        self.observation_spaces = self._agents.observation_spaces
        self.action_spaces = self._agents.action_spaces
        self._obs: dict[str, Any] = {}
        self._info: dict[str, Any] = {}

    def reset(self, seed: int | None, what: str) -> EnvResponse:
        """Start an episode."""
        result = self.env.reset() if seed is None else self.env.reset(seed=seed)
        try:
            self._obs, self._info = result
        except (TypeError, ValueError):
            raise TypeError(
                f"reset() returned {counted(result)}, not observations and infos"
            ) from None
        return EnvResponse(what, self._obs, {}, {}, {}, self._info, False)

    def draw(self) -> dict[str, Any]:
        """An action for each living agent."""
        return {
            agent: self._agents.draw(agent, self._obs.get(agent), self._info.get(agent))
            for agent in self.env.agents
        }

    def step(self, drawn: dict[str, Any], what: str) -> EnvResponse:
        """Take them."""
        obs, reward, terminated, truncated, info = five_of(self.env.step(drawn))
        self._obs, self._info = obs, info
        over = not self.env.agents
        return EnvResponse(what, obs, reward, terminated, truncated, info, over)
