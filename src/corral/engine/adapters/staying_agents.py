"""A PettingZoo env whose agents stay until the last one is out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.engine.adapters.agents_wrapper import AgentsWrapper
from corral.engine.adapters.pettingzoo import parallel_form
from corral.engine.adapters.team import Agent
from corral.engine.tree import mapped


class StayingAgents(AgentsWrapper):
    """All agents stay until the last one is out, for learners that need them all.

        make = lambda: corral.StayingAgents(grid_world.parallel_env(flat=True))
        envs = AsyncPettingZooVecEnv([make] * 8)  # AgileRL's IPPO trains on it

    An agent that is out observes zeros, gets no reward, and its actions are ignored, as
    with SuperSuit's `black_death`. In the last step every agent ends the way that it
    left: terminated or truncated.

    Args:
        env: a ParallelEnv, or an AECEnv; if its agents must act in turn, a step is one
            agent's turn.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(parallel_form(env))
        # How agents left: terminated, truncated.
        self._left: dict[Agent, tuple[bool, bool]] = {}

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Agent, Any], dict[Agent, Any]]:
        """Begin an episode, with all agents."""
        obs, infos = self.env.reset(seed=seed, options=options)
        self.agents, self._left = list(self.possible_agents), {}
        return self._seen(obs), self._told(infos)

    def step(self, actions: Mapping[Agent, Any]) -> tuple[dict[Agent, Any], ...]:
        """Step the env with the actions of those that are not out."""
        there = {agent: actions[agent] for agent in self.env.agents if agent in actions}
        obs, reward, terminated, truncated, infos = self.env.step(there)
        for agent, ended in terminated.items():
            if ended or truncated.get(agent):
                self._left[agent] = bool(ended), bool(truncated.get(agent))
        over = not self.env.agents
        if over:
            self.agents = []
        rewards = {a: reward.get(a, 0.0) for a in self.possible_agents}
        ends = self._ends(0, over), self._ends(1, over)
        return self._seen(obs), rewards, *ends, self._told(infos)

    def _ends(self, way: int, over: bool) -> dict[Agent, bool]:
        """Whether each agent ends now, in this way; one that never came: truncated."""
        never = False, True
        return {
            agent: over and self._left.get(agent, never)[way]
            for agent in self.possible_agents
        }

    def _seen(self, obs: Mapping[Agent, Any]) -> dict[Agent, Any]:
        return {a: obs[a] if a in obs else self._zeros(a) for a in self.possible_agents}

    def _zeros(self, agent: Agent) -> Any:
        # Here, since it takes as long to import as the rest of Gymnasium.
        from gymnasium.vector.utils import create_empty_array

        empty = create_empty_array(self.observation_space(agent), 1, np.zeros)
        return mapped(lambda part: part[0], empty)

    def _told(self, infos: Mapping[Agent, Any]) -> dict[Agent, Any]:
        return {a: infos.get(a, {}) for a in self.possible_agents}
