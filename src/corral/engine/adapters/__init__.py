"""The adapter of any env, or the reason why it has none."""

from __future__ import annotations

from typing import Any

import gymnasium

from corral.core import Adapter
from corral.engine.adapters.multi_agent import PettingZooAdapter
from corral.engine.adapters.single_agent import GymnasiumAdapter
from corral.errors import OptionError

__all__ = ["GymnasiumAdapter", "adapt"]


def adapt(env: Any) -> Adapter:
    """Give the env its adapter."""
    if isinstance(env, gymnasium.Env):
        return GymnasiumAdapter(env)
    if isinstance(env, PettingZooAdapter):
        return env  # `make_multi` has adapted it already
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
