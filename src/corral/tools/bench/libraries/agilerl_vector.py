"""AgileRL's way to many envs."""

from __future__ import annotations

from agilerl.utils.utils import make_vect_envs
from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv

from corral.core import Factory
from corral.engine.adapters.pettingzoo import adapt_multi
from corral.tools.bench.libraries import BuiltEnvs
from corral.tools.bench.libraries.agent_rows import by_agent
from corral.tools.bench.libraries.gymnasium_vector import stepped
from corral.tools.bench.messages import BuildOrder


def build(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Make what `make_vect_envs` gives for the factory, and reset it."""
    if order.agents:
        return _with_agents(order, factory)
    envs = make_vect_envs(num_envs=order.num_envs, make_env=factory)
    return stepped(envs, order.seed)


def _with_agents(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    one = adapt_multi(factory())
    envs = AsyncPettingZooVecEnv([factory] * order.num_envs)
    envs.reset(seed=order.seed)
    split = by_agent(one.team)
    one.close()
    return BuiltEnvs(
        lambda actions: envs.step(split(actions)), envs.close, one.spec.action_space
    )
