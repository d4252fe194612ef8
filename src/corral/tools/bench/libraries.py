"""How each library steps many envs; imported in the candidate's own process only.

A function for each library makes the envs and resets them. `builder_of` imports the
library before that, so that start-up times do not include imports.

For Gymnasium's envs SuperSuit's `gym_vec_env_v0` alone, without `concat_vec_envs_v1`
around it, whose reset expects no infos.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.vector.utils import batch_space, iterate

from corral.api.gymnasium.make import make
from corral.api.pettingzoo.env import make_multi
from corral.core import Factory
from corral.engine.adapters import adapt
from corral.engine.adapters.env_names import is_pettingzoo
from corral.engine.adapters.factories import has_agents
from corral.engine.adapters.pettingzoo import MultiAdapter, adapt_multi
from corral.engine.adapters.team import Team
from corral.engine.executors.assign import Placement, usable_cores
from corral.engine.pool import Stats
from corral.errors import MissingExtra, OptionError
from corral.tools.bench.candidates import BuildOrder

# Agents of one group that are named.
MAX_NAMED_AGENTS = 3


@dataclass(frozen=True, slots=True)
class BuiltEnvs:
    """Envs that were reset and can be stepped.

    Attributes:
        step: Takes a batch of actions.
        action_space: Of one env.
        episodes: How many have ended so far, where they are counted.
        agents: How several agents act, as in `BuildOrder`.
        groups_text: Observations and actions in words, where the spaces are not the
            env's own.
    """

    step: Callable[[Any], Any]
    close: Callable[[], None]
    action_space: Space[Any]
    observation_space: Space[Any] | None = None
    episodes: Callable[[], int] | None = None
    stats: Callable[[], Stats] | None = None
    layout: Placement | None = None
    agents: str = ""
    groups_text: tuple[str, str] | None = None


Build = Callable[[BuildOrder, Factory], BuiltEnvs]


def builder_of(library: str) -> Build:
    """Import the library; returns its function."""
    build, modules = BUILDERS[library]
    try:
        for name in modules:
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Libraries do not always bring all that they import.
        lacking = (error.name or "").partition(".")[0]
        raise MissingExtra(
            f"{library} is installed, but it imports {lacking}, which is not: pip "
            f"install {lacking}"
        ) from error
    return build


# One bare env -------------------------------------------------------------------------


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


def bare(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """One bare env in a `for` loop: the unit that everything is compared with."""
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


# Corral and its peers -----------------------------------------------------------------


def corral(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Our own layouts, through Gymnasium's API and with all infos delivered."""
    options: dict[str, Any] = {
        "backend": order.candidate.kind,
        "workers": order.candidate.workers,
        "seed": order.seed,
    }
    envs: Any
    if order.agents:
        options["autoreset"] = "next_step"  # as in Gymnasium's API
        envs = make_multi(factory, order.num_envs, **options)
    else:
        envs = make(factory, order.num_envs, **options)
    envs.reset(seed=order.seed)
    spaces = envs.pool.spec.action_space, envs.pool.spec.observation_space
    return BuiltEnvs(
        envs.step, envs.close, *spaces, stats=envs.stats, layout=envs.layout
    )


def gymnasium(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Gymnasium's `SyncVectorEnv` or `AsyncVectorEnv`."""
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    kind = SyncVectorEnv if order.candidate.kind == "sync" else AsyncVectorEnv
    return _reset(kind([factory] * order.num_envs), order)


def sb3(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Stable-Baselines3's `DummyVecEnv` or `SubprocVecEnv`."""
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    kind = DummyVecEnv if order.candidate.kind == "dummy" else SubprocVecEnv
    envs = kind([factory] * order.num_envs)
    envs.seed(order.seed)
    envs.reset()
    return BuiltEnvs(envs.step, envs.close, envs.action_space, envs.observation_space)


def agilerl(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """What AgileRL's `make_vect_envs` makes; for agents, `AsyncPettingZooVecEnv`."""
    from agilerl.utils.utils import make_vect_envs
    from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv

    if not order.agents:
        return _reset(make_vect_envs(num_envs=order.num_envs, make_env=factory), order)
    one = adapt_multi(factory())
    envs = AsyncPettingZooVecEnv([factory] * order.num_envs)
    one.close()
    return _with_agents(envs, order, one, _by_agent(one.team))


def supersuit(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """SuperSuit's copies of one env; with agents, each agent of each env is a row."""
    import supersuit

    processes, env = order.candidate.kind == "async", factory()
    if not order.agents:
        make = supersuit.gym_vec_env_v0
        return _reset(make(env, order.num_envs, multiprocessing=processes), order)
    one = adapt_multi(env)
    join = _by_row(one.team)
    envs = supersuit.concat_vec_envs_v1(
        supersuit.pettingzoo_env_to_vec_env_v1(env),
        order.num_envs,
        num_cpus=usable_cores() if processes else 0,
    )
    return _with_agents(envs, order, one, join)


def _reset(envs: Any, order: BuildOrder) -> BuiltEnvs:
    """Any of Gymnasium's vector envs, reset."""
    envs.reset(seed=order.seed)
    spaces = envs.single_action_space, envs.single_observation_space
    return BuiltEnvs(envs.step, envs.close, *spaces)


def _with_agents(
    envs: Any, order: BuildOrder, one: MultiAdapter, convert: Callable[[Any], Any]
) -> BuiltEnvs:
    """Envs that take the actions of groups once they are converted."""
    envs.reset(seed=order.seed)
    return BuiltEnvs(
        lambda actions: envs.step(convert(actions)), envs.close, one.spec.action_space
    )


def _by_agent(team: Team) -> Callable[[Any], dict[Any, Any]]:
    """Agent -> (slots, ...); each batch is split once, since it is used again."""
    known: dict[int, dict[Any, Any]] = {}

    def split(actions: Any) -> dict[Any, Any]:
        if id(actions) not in known:
            known[id(actions)] = {
                agent: np.ascontiguousarray(actions[group.name][:, position])
                for group in team.groups
                for position, agent in enumerate(group.agents)
            }
        return known[id(actions)]

    return split


def _by_row(team: Team) -> Callable[[Any], Any]:
    """(slots x agents, ...): all agents of one env after the other."""
    if len(team.groups) > 1:
        raise OptionError("SuperSuit needs envs whose agents all have equal spaces")

    def joined(actions: Any) -> Any:
        batch = actions[team.groups[0].name]
        return batch.reshape(-1, *batch.shape[2:])

    return joined


# Library -> its function, and the modules that are imported before that is timed.
BUILDERS: dict[str, tuple[Build, tuple[str, ...]]] = {
    "loop": (bare, ()),
    "corral": (corral, ()),
    "gymnasium": (gymnasium, ("gymnasium.vector",)),
    "sb3": (sb3, ("stable_baselines3.common.vec_env",)),
    "agilerl": (agilerl, ("agilerl.utils.utils", "agilerl.vector.pz_async_vec_env")),
    "supersuit": (supersuit, ("supersuit",)),
}
