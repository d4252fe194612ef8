"""The adapter of any env, or the reason why it has none."""

from __future__ import annotations

from typing import Any

import gymnasium

from corral.core import Adapter
from corral.engine.adapters.single_agent import GymnasiumAdapter, SingleEnvAdapter
from corral.engine.adapters.task_delivery import TaskBy, way_for
from corral.errors import OptionError

__all__ = ["GymnasiumAdapter", "adapt"]


def adapt(env: Any, task_by: TaskBy | None = None) -> Adapter:
    """Give the env its adapter.

    Args:
        env: of Gymnasium, or adapted already.
        task_by: how it is told its tasks (default: the first way that it has).
    """
    adapter = GymnasiumAdapter(env) if isinstance(env, gymnasium.Env) else env
    if isinstance(adapter, SingleEnvAdapter):  # also those of `make_multi`
        if task_by is not None:
            adapter.task_by = way_for(adapter.env, task_by)
        return adapter
    if env is None:
        raise OptionError(
            "the factory returned None, not an environment; "
            "does it end in `return env`?"
        )
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise OptionError(
            f"the factory returned {type(env).__name__}, which is a vector of "
            "environments; return one environment and let num_envs do the rest"
        )
    hint = ""
    if hasattr(env, "reset") and hasattr(env, "step"):
        hint = "; it has reset and step: derive its class from gymnasium.Env"
    if hasattr(env, "possible_agents"):
        hint = "; it has several agents: use corral.make_multi"
    raise OptionError(
        f"the factory returned {type(env).__name__} ({env!r:.80}), "
        f"not a gymnasium.Env{hint}"
    )
