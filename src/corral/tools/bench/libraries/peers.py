"""Other libraries' ways to many envs: a function for each.

For Gymnasium's envs SuperSuit's `gym_vec_env_v0` alone, without `concat_vec_envs_v1`
around it, whose reset expects no infos.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from corral.core import Factory
from corral.engine.adapters.pettingzoo import MultiAdapter, adapt_multi
from corral.engine.adapters.team import Team
from corral.engine.executors.assign import usable_cores
from corral.errors import OptionError
from corral.tools.bench.candidates import BuildOrder
from corral.tools.bench.libraries import BuiltEnvs

IMPORTS = {
    "gymnasium": ("gymnasium.vector",),
    "sb3": ("stable_baselines3.common.vec_env",),
    "agilerl": ("agilerl.utils.utils", "agilerl.vector.pz_async_vec_env"),
    "supersuit": ("supersuit",),
}
"""What `builder_of` imports before a function below is called, and timed."""


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
