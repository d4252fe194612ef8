"""Our own layouts, through Gymnasium's API and with all infos delivered."""

from __future__ import annotations

from corral.api.gymnasium.make import make
from corral.api.pettingzoo.make import make_multi
from corral.core import Factory
from corral.tools.bench.libraries import BuiltEnvs
from corral.tools.bench.messages import BuildOrder


def build(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Make a vector env with the candidate's layout and reset it."""
    candidate = order.candidate
    if order.agents:
        return _with_agents(order, factory)
    envs = make(
        factory,
        order.num_envs,
        backend=candidate.kind,
        workers=candidate.workers,
        seed=order.seed,
    )
    envs.reset(seed=order.seed)
    return BuiltEnvs(
        envs.step,
        envs.close,
        envs.single_action_space,
        envs.single_observation_space,
        stats=envs.stats,
        layout=envs.layout,
    )


def _with_agents(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    candidate = order.candidate
    envs = make_multi(
        factory,
        order.num_envs,
        autoreset="next_step",  # as above
        backend=candidate.kind,
        workers=candidate.workers,
        seed=order.seed,
    )
    envs.reset(seed=order.seed)
    return BuiltEnvs(
        envs.step,
        envs.close,
        envs.pool.spec.action_space,
        envs.pool.spec.observation_space,
        stats=envs.stats,
        layout=envs.layout,
    )
