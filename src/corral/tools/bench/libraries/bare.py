"""One bare env in a `for` loop: the unit that everything is compared with."""

from __future__ import annotations

from typing import Any

from gymnasium.vector.utils import batch_space, iterate

from corral.core import Factory
from corral.engine.adapters import adapt
from corral.engine.adapters.env_names import is_pettingzoo
from corral.engine.adapters.pettingzoo import MultiAdapter, adapt_multi, has_agents
from corral.tools.bench.candidates import BuildOrder
from corral.tools.bench.libraries import BuiltEnvs

MAX_NAMED_AGENTS = 3
"""Agents of one group that are named."""


class EnvLoop:
    """Steps one env as often as a batch has slots; resets it when an episode ends."""

    def __init__(self, env: Any, action_space: Any, slots: int) -> None:
        self._env = env
        self._batched = batch_space(action_space, slots)
        self._rows: dict[int, list[Any]] = {}
        self.episodes = 0

    def step(self, actions: Any) -> None:
        """Step the env with one action after the other."""
        env = self._env
        for action in self._split(actions):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                self.episodes += 1
                env.reset()

    def _split(self, actions: Any) -> list[Any]:
        # The batches are drawn once and used again and again: split each only once.
        rows = self._rows.get(id(actions))
        if rows is None:
            split = iterate(self._batched, actions)
            rows = self._rows[id(actions)] = [self._given(row) for row in split]
        return rows

    def _given(self, row: Any) -> Any:
        return row


class AgentsLoop(EnvLoop):
    """The same for an env with several agents: a step is all of theirs, or a turn."""

    def __init__(self, adapter: MultiAdapter, slots: int) -> None:
        super().__init__(adapter.env, adapter.spec.action_space, slots)
        self._seats = adapter.roster.seats
        self._step = self._in_turn if adapter.turns else self._at_once

    def step(self, actions: Any) -> None:
        """Step the env with one action after the other."""
        env = self._env
        for given in self._split(actions):
            self._step(given)
            if not env.agents:
                self.episodes += 1
                env.reset()

    def _given(self, row: Any) -> Any:
        return {agent: seat.take(row) for agent, seat in self._seats.items()}

    def _at_once(self, given: dict[Any, Any]) -> None:
        env = self._env
        if len(given) > len(env.agents):
            given = {agent: given[agent] for agent in env.agents}
        env.step(given)

    def _in_turn(self, given: dict[Any, Any]) -> None:
        env = self._env
        env.step(given[env.agent_selection])
        while env.agents and self._dead(env.agent_selection):
            env.step(None)
        if env.agents:
            env.observe(env.agent_selection)

    def _dead(self, agent: Any) -> bool:
        return bool(self._env.terminations[agent] or self._env.truncations[agent])


def build(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Make one env and reset it."""
    env = factory()
    several = is_pettingzoo(env) or has_agents(env)
    adapter = adapt_multi(env) if several else adapt(env)  # says what is wrong with it
    loop: EnvLoop
    if isinstance(adapter, MultiAdapter):
        env, loop = adapter.env, AgentsLoop(adapter, order.num_envs)
    else:
        loop = EnvLoop(env, env.action_space, order.num_envs)
    env.reset(seed=order.seed)
    spaces = adapter.spec if several else env
    return BuiltEnvs(
        loop.step,
        env.close,
        spaces.action_space,
        spaces.observation_space,
        episodes=lambda: loop.episodes,
        **_agents(adapter) if isinstance(adapter, MultiAdapter) else {},
    )


def _agents(adapter: MultiAdapter) -> dict[str, Any]:
    """How the agents act, and which space belongs to which of them."""
    seen, done = [], []
    for group in adapter.team.groups:
        names = ", ".join(map(str, group.agents[:MAX_NAMED_AGENTS]))
        more = len(group.agents) - MAX_NAMED_AGENTS
        names += f" and {more} more" if more > 0 else ""
        seen.append(f"{names}: {group.observation_space}")
        done.append(f"{names}: {group.action_space}")
    return {
        "agents": "in turns" if adapter.turns else "at once",
        "groups_text": ("; ".join(seen), "; ".join(done)),
    }
