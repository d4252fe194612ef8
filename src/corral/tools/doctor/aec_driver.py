"""A PettingZoo AECEnv, driven with sampled actions: one step is one agent's turn."""

from __future__ import annotations

from typing import Any

from corral.tools.doctor.env_response import EnvResponse
from corral.tools.doctor.sampling_agents import SamplingAgents


class AecDriver:
    """The agents act one after the other; the dead ones say None."""

    def __init__(self, env: Any, seed: int) -> None:
        self.env = env
        self._agents = SamplingAgents(env, seed)
        self.observation_spaces = self._agents.observation_spaces
        self.action_spaces = self._agents.action_spaces

    def reset(self, seed: int | None, what: str) -> EnvResponse:
        """Start an episode."""
        if seed is None:
            self.env.reset()
        else:
            self.env.reset(seed=seed)
        return self._moment(what)

    def draw(self) -> Any:
        """An action for the agent whose turn it is."""
        obs, _, terminated, truncated, info = self.env.last()
        if terminated or truncated:
            return None
        return self._agents.draw(self.env.agent_selection, obs, info)

    def step(self, drawn: Any, what: str) -> EnvResponse:
        """Take it."""
        self.env.step(drawn)
        return self._moment(what)

    def _moment(self, what: str) -> EnvResponse:
        env = self.env
        if not env.agents:
            return EnvResponse(what, {}, {}, {}, {}, {}, True)
        agent = env.agent_selection
        return EnvResponse(
            what,
            {agent: env.observe(agent)},
            dict(env.rewards),
            dict(env.terminations),
            dict(env.truncations),
            dict(env.infos),
            False,
        )
