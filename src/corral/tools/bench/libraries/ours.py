"""Our own layouts, through Gymnasium's API and with all infos delivered."""

from __future__ import annotations

from typing import Any

from corral.api.gymnasium.make import make
from corral.api.pettingzoo.env import make_multi
from corral.core import Factory
from corral.tools.bench.candidates import BuildOrder
from corral.tools.bench.libraries import BuiltEnvs


def build(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Make a vector env with the candidate's layout and reset it."""
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
    spec = envs.pool.spec
    return BuiltEnvs(
        envs.step,
        envs.close,
        spec.action_space,
        spec.observation_space,
        stats=envs.stats,
        layout=envs.layout,
    )
