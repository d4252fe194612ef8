"""SuperSuit's ways to many envs.

For those of Gymnasium not `concat_vec_envs_v1`: around one its reset expects no infos.
"""

from __future__ import annotations

from supersuit import (
    concat_vec_envs_v1,
    gym_vec_env_v0,
    pettingzoo_env_to_vec_env_v1,
)

from corral.core import Factory
from corral.engine.adapters.pettingzoo import adapt_multi
from corral.engine.executors.assign import usable_cores
from corral.tools.bench.libraries import BuiltEnvs
from corral.tools.bench.libraries.agent_rows import by_row
from corral.tools.bench.libraries.gymnasium_vector import stepped
from corral.tools.bench.messages import BuildOrder


def build(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Make copies of one env with `gym_vec_env_v0`, and reset them."""
    if order.agents:
        return _with_agents(order, factory)
    processes = order.candidate.kind == "async"
    envs = gym_vec_env_v0(factory(), order.num_envs, multiprocessing=processes)
    return stepped(envs, order.seed)


def _with_agents(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Every agent of every env is a row."""
    env = factory()
    one = adapt_multi(env)
    join = by_row(one.team)
    envs = concat_vec_envs_v1(
        pettingzoo_env_to_vec_env_v1(env),
        order.num_envs,
        num_cpus=usable_cores() if order.candidate.kind == "async" else 0,
    )
    envs.reset(seed=order.seed)
    return BuiltEnvs(
        lambda actions: envs.step(join(actions)), envs.close, one.spec.action_space
    )
