"""A policy of single agents, used for whole envs.

A policy that was trained row by row is evaluated env by env: episodes are those of
envs, and an env's return is the sum over its agents.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from corral.api.pettingzoo.step import MultiStep
from corral.api.shared_policy.spaces import SharedSpaces, as_rows
from corral.core import Decision, Generators, Step
from corral.engine.adapters.team import Team
from corral.engine.tree import mapped


class SharedPolicy:
    """Acts for every agent of every env; see `corral.Policy`.

    Args:
        policy: a policy whose rows are agents.
        team: the agents.
        spaces: the spaces of its rows.
    """

    def __init__(self, policy: Any, team: Team, spaces: SharedSpaces) -> None:
        self._policy = policy
        self._team = team
        self._spaces = spaces
        self._agents = len(team.agents)

    def deterministic(self) -> SharedPolicy:
        """The same, with the most likely actions."""
        return SharedPolicy(self._policy.deterministic(), self._team, self._spaces)

    def stochastic(self) -> SharedPolicy:
        """The same, with sampled actions."""
        return SharedPolicy(self._policy.stochastic(), self._team, self._spaces)

    def frozen(self) -> SharedPolicy:
        """As `deterministic`, with a copy of the policy that is not trained further."""
        return SharedPolicy(self._policy.frozen(), self._team, self._spaces)

    def initial_carry(self, rows: int) -> Any:
        """The carry at the start of an episode, for this many envs."""
        initial = getattr(self._policy, "initial_carry", None)
        carry = None if initial is None else initial(rows * self._agents)
        return self._by_env(carry, rows)

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Choose an action for each agent of each env."""
        envs, agents = len(step), self._agents
        decision = self._policy.act(
            self._rows(step),
            as_rows(carry, envs * agents),
            AgentGenerators(rng, agents),
        )
        action = self._spaces.actions(decision.action, envs)
        return Decision(action, self._by_env(decision.carry, envs))

    def _rows(self, step: Step) -> Step:
        """The observations of agents; the transition before them is not needed."""
        envs, agents = len(step), self._agents
        nothing_over = np.zeros(envs, np.bool_)
        read = MultiStep(self._team, step, True, False, over=nothing_over)
        groups = [group.name for group in self._team.groups]
        rewards = {name: step.obs[name]["reward"] for name in groups}
        names = ("terminated", "truncated", "started", "valid", "seed")
        each: Any = {name: np.repeat(getattr(step, name), agents) for name in names}
        return replace(
            step,
            slots=np.arange(envs * agents),
            obs=self._spaces.rows(read.obs, read.alive, envs),
            reward=self._spaces.flags(rewards).ravel(),
            previous_action=None,
            **each,
        )

    def _by_env(self, carry: Any, envs: int) -> Any:
        shape = envs, self._agents
        return mapped(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), carry)


class AgentGenerators:
    """Generators of agents: those of one env share its generator."""

    def __init__(self, envs: Generators, agents: int) -> None:
        self._envs = envs
        self._agents = agents

    def __len__(self) -> int:
        return len(self._envs) * self._agents

    def __getitem__(self, row: int) -> np.random.Generator:
        return self._envs[row // self._agents]

    def random(self, count: int = 1) -> Any:
        """Draw `(rows, count)` numbers from [0, 1)."""
        return self._envs.random(count * self._agents).reshape(len(self), count)

    def normal(self, count: int = 1) -> Any:
        """Draw `(rows, count)` standard normal numbers."""
        return self._envs.normal(count * self._agents).reshape(len(self), count)
