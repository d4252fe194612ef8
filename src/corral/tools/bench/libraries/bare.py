"""One bare env in a `for` loop: the unit that everything is held against."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gymnasium.vector.utils import batch_space, iterate

from corral.core import Factory
from corral.engine.adapters import adapt
from corral.engine.adapters.env_names import is_pettingzoo
from corral.engine.adapters.pettingzoo import MultiAdapter, adapt_multi, has_agents
from corral.tools.bench.libraries import BuiltEnvs
from corral.tools.bench.messages import BuildOrder


class EnvLoop:
    """Steps one env as often as a batch has slots; resets it when an episode ends."""

    def __init__(self, env: Any, slots: int) -> None:
        self._env = env
        self._batched = batch_space(env.action_space, slots)
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
        # The batches are drawn once and come again and again: split each only once.
        rows = self._rows.get(id(actions))
        if rows is None:
            rows = self._rows[id(actions)] = list(iterate(self._batched, actions))
        return rows


def build(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Make one env and reset it."""
    env = factory()
    if is_pettingzoo(env) or has_agents(env):
        return _with_agents(order, adapt_multi(env))
    adapt(env)  # says what is wrong with anything else that is no gymnasium.Env
    env.reset(seed=order.seed)
    loop = EnvLoop(env, order.num_envs)
    return BuiltEnvs(
        loop.step,
        env.close,
        env.action_space,
        env.observation_space,
        episodes=lambda: loop.episodes,
    )


# Several agents -----------------------------------------------------------------------


MAX_NAMED_AGENTS = 3
"""Agents of one group that are named."""


class AgentsLoop:
    """The same for an env with several agents: a step is all of theirs, or a turn."""

    def __init__(self, adapter: MultiAdapter, slots: int) -> None:
        self._env = adapter.env
        self._seats = adapter.roster.seats
        self._step = self._in_turn if adapter.turns else self._at_once
        self._batched = batch_space(adapter.spec.action_space, slots)
        self._rows: dict[int, list[Any]] = {}
        self.episodes = 0

    def step(self, actions: Any) -> None:
        """Step the env with one action after the other."""
        env = self._env
        rows = self._rows.get(id(actions))
        if rows is None:
            rows = self._rows[id(actions)] = [
                {agent: seat.take(row) for agent, seat in self._seats.items()}
                for row in iterate(self._batched, actions)
            ]
        for given in rows:
            self._step(given)
            if not env.agents:
                self.episodes += 1
                env.reset()

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


def _with_agents(order: BuildOrder, adapter: MultiAdapter) -> BuiltEnvs:
    adapter.env.reset(seed=order.seed)
    loop = AgentsLoop(adapter, order.num_envs)
    return BuiltEnvs(
        loop.step,
        adapter.env.close,
        adapter.spec.action_space,
        adapter.spec.observation_space,
        episodes=lambda: loop.episodes,
        agents="in turns" if adapter.turns else "at once",
        groups_text=(
            _groups_text(
                (one.agents, one.observation_space) for one in adapter.team.groups
            ),
            _groups_text((one.agents, one.action_space) for one in adapter.team.groups),
        ),
    )


def _groups_text(groups: Iterable[tuple[Sequence[Any], Any]]) -> str:
    """Whose space is which."""
    texts = []
    for agents, space in groups:
        names = ", ".join(map(str, agents[:MAX_NAMED_AGENTS]))
        more = (
            f" and {len(agents) - MAX_NAMED_AGENTS} more"
            if len(agents) > MAX_NAMED_AGENTS
            else ""
        )
        texts.append(f"{names}{more}: {space}")
    return "; ".join(texts)
