"""Agents in turn, seen as agents that act at once: a step is one agent's turn.

For everything that steps all agents together: `FlattenedAgents`, `make_shared_policy`,
AgileRL. Every living agent sees what it would see on its turn and has an action; only
the action of the agent whose turn it is reaches the env.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral.engine.adapters.agents_wrapper import AgentsWrapper
from corral.engine.adapters.roster import alive
from corral.engine.adapters.team import MASK_KEY, Agent
from corral.errors import SpaceMismatch

# The key of an agent's info: whether it acts in the next step.
ACTING_KEY = "acting"


class TurnSteps(AgentsWrapper):
    """An AECEnv as a ParallelEnv.

    A step returns what that turn gave to every agent that was alive. Infos have
    `acting`, and masks only where an agent acts.

    Args:
        env: an AECEnv.
    """

    @property
    def acting(self) -> Agent | None:
        """The agent whose turn it is."""
        return self.env.agent_selection if self.agents else None

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Agent, Any], dict[Agent, Any]]:
        self.env.reset(seed=seed, options=options)
        self.agents = list(self.env.agents)
        self._let_the_dead_pass({})
        seen = {agent: self.env.observe(agent) for agent in self.agents}
        return seen, self._infos(self.agents)

    def step(self, actions: Mapping[Agent, Any]) -> tuple[dict[Agent, Any], ...]:
        """Step the agent whose turn it is with its action; others are ignored."""
        env, present = self.env, self.agents
        env.step(actions[env.agent_selection])
        rewards = {agent: env.rewards.get(agent, 0.0) for agent in present}
        ends: dict[Agent, tuple[bool, bool, Any, Any]] = {}
        self._let_the_dead_pass(ends)
        seen = {agent: end[2] for agent, end in ends.items()}
        seen |= {agent: env.observe(agent) for agent in self.agents}
        infos = {agent: end[3] for agent, end in ends.items()}
        return (
            seen,
            rewards,
            {agent: agent in ends and ends[agent][0] for agent in present},
            {agent: agent in ends and ends[agent][1] for agent in present},
            infos | self._infos(self.agents),
        )

    def _let_the_dead_pass(
        self, ends: dict[Agent, tuple[bool, bool, Any, Any]]
    ) -> None:
        """Step dead agents with None, as PettingZoo asks; `ends` gets what they saw."""
        env = self.env
        for _ in range(4 * len(self.possible_agents)):
            terminations, truncations = env.terminations, env.truncations
            for agent in self.agents:
                over = terminations.get(agent, False), truncations.get(agent, False)
                if any(over) and agent not in ends:
                    ends[agent] = (*over, env.observe(agent), dict(env.infos[agent]))
            self.agents = alive(env.agents, terminations, truncations)
            if not env.agents or env.agent_selection in self.agents:
                return
            env.step(None)
        raise SpaceMismatch(
            f"the dead agent {env.agent_selection!r} is still selected after "
            "env.step(None); call _was_dead_step in env.step"
        )

    def _infos(self, agents: list[Agent]) -> dict[Agent, dict[str, Any]]:
        infos, acting = {}, self.acting
        for agent in agents:
            info = dict(self.env.infos.get(agent) or {})
            if agent != acting:
                info.pop(MASK_KEY, None)
            infos[agent] = {**info, ACTING_KEY: agent == acting}
        return infos
