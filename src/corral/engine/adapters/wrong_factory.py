"""Mistakes in the place of a factory, and what to pass instead."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredSpec

from corral.engine.adapters.pettingzoo import has_agents
from corral.errors import OptionError

PETTINGZOO_MAKERS = ("parallel_env", "env")
"""PettingZoo's names of the functions that make an env: parallel, and in turns."""


def check_factory(thing: Any, place: str = "env") -> None:
    """Refuse what cannot be a factory, and say what to pass instead.

    Args:
        thing: the value in the place of a factory.
        place: how the error names that place.
    """
    if isinstance(thing, (str, RegisteredSpec)):
        return
    mistake = _mistake(thing)
    if not mistake and not callable(thing):
        mistake = (
            f'{thing!r:.80}; pass an id such as "CartPole-v1", "module:function", a '
            "function or class that makes an environment, or a list of those"
        )
    if mistake:
        raise OptionError(f"{place} is {mistake}")


def _mistake(thing: Any) -> str:
    """What it is and what to pass; "" if it may be a factory."""
    if isinstance(thing, ModuleType):
        return f"the module {thing.__name__}; {_function_of(thing)}"
    if inspect.isclass(thing):
        # A class with a `__new__` of its own may make an object of another class.
        makes = hasattr(thing, "reset") or hasattr(thing, "step")
        if makes or isinstance(thing.__new__, FunctionType):
            return ""
        return (
            f"the class {thing.__name__}, which has no reset and no step; pass a class "
            "derived from gymnasium.Env, or a function that makes an environment"
        )
    # Stable-Baselines3's VecEnv too, without importing it.
    vec_env = hasattr(thing, "num_envs") and callable(getattr(thing, "step_wait", None))
    if isinstance(thing, gymnasium.vector.VectorEnv) or vec_env:
        return (
            f"{type(thing).__name__}, which is several environments already; pass a "
            "factory of one of them, and num_envs"
        )
    if isinstance(thing, gymnasium.Env):
        return f"an environment, {thing}; {_maker_of(thing)}"
    if has_agents(thing):
        return (
            f"an environment with several agents, {type(thing).__name__}; pass the "
            "function that made it to corral.make_multi, which calls it once per slot"
        )
    if isinstance(thing, Iterator):
        return f"{type(thing).__name__}, which can be read once; pass a list"
    return ""


def _function_of(module: ModuleType) -> str:
    """Which function of a module makes environments."""
    makers = [one for one in PETTINGZOO_MAKERS if callable(getattr(module, one, None))]
    if not makers:
        return "pass a function or class of it that makes an environment"
    short = module.__name__.rpartition(".")[2]
    choice = " or ".join(f"{short}.{one}" for one in makers)
    return (
        f"pass its function {choice} to corral.make_multi (several agents) or "
        "corral.make_shared_policy (one policy for all agents)"
    )


def _maker_of(env: gymnasium.Env[Any, Any]) -> str:
    if env.spec is not None:
        name = f'"{env.spec.id}"'
        return f"pass its id, {name}, or lambda: gymnasium.make({name}, ...)"
    made = type(env.unwrapped).__name__
    return f"pass the class, {made}, or a function that makes one: lambda: {made}(...)"
