"""Stable-Baselines3's calls to an env, run in its worker: `pool.apply(get_attr, name)`.

Reads go through the wrappers, writes go to the outermost one. Workers import this file,
so it imports neither Stable-Baselines3 nor torch.
"""

from __future__ import annotations

import os
import sys
import weakref
from copy import deepcopy
from typing import Any

import gymnasium

from corral.api.sb3.action_masks import inner, only_reads
from corral.engine.adapters.multi_agent import layer_with
from corral.errors import OptionError


@only_reads
def get_attr(env: Any, name: str) -> Any:
    """Read the attribute, wherever in the wrappers it is; a method is not called."""
    layer = inner(env)
    if isinstance(layer, gymnasium.Env):
        return layer.get_wrapper_attr(name)
    # Batched, and the same for all of its slots; or PettingZoo's.
    return getattr(layer_with(layer, name) or layer, name)


@only_reads
def has_attr(env: Any, name: str) -> bool:
    """Whether the env or one of its wrappers has the attribute."""
    try:
        get_attr(env, name)
    except AttributeError:
        return False
    return True


def set_attr(env: Any, name: str, value: Any) -> None:
    """Set the attribute on the outermost wrapper, and only there."""
    setattr(_of_one_slot(inner(env), name), name, value)


def call(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the method, wherever in the wrappers it is."""
    _of_one_slot(inner(env), name)
    return get_attr(env, name)(*args, **kwargs)


def _of_one_slot(env: Any, name: str) -> Any:
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise OptionError(
            f"{name!r} cannot be called or set for one slot: {type(env).__name__} is a "
            "batched env that runs all slots of its worker"
        )
    return env


@only_reads
def identity(env: Any) -> tuple[int, int]:
    """A key that is equal for two slots with the same environment."""
    return os.getpid(), id(inner(env).unwrapped)


# Wrappers by name ---------------------------------------------------------------------

Wanted = type | tuple[str, str]


def known_as(wrapper: type) -> Wanted:
    """A class by module and name, if they identify it.

    A worker that received the class would import its module: for Stable-Baselines3's
    Monitor that is torch, some seconds and 200 MiB, only to answer no.
    """
    if wrapper.__module__ == "__main__" or "<locals>" in wrapper.__qualname__:
        return wrapper
    return wrapper.__module__, wrapper.__qualname__


@only_reads
def is_wrapped(env: Any, wanted: Wanted) -> bool:
    """Whether one of the env's wrappers is of this class."""
    layer = inner(env)
    while isinstance(layer, gymnasium.Wrapper):
        if _is_one(layer, wanted):
            return True
        layer = layer.env
    return False


def _is_one(layer: Any, wanted: Wanted) -> bool:
    if isinstance(wanted, type):
        return isinstance(layer, wanted)
    lineage = type(layer).__mro__
    return any((one.__module__, one.__qualname__) == wanted for one in lineage)


# Wrappers of ours ---------------------------------------------------------------------


def patched(env: Any) -> Any:
    """Wrap an env of the old `gym` package, as Stable-Baselines3 does."""
    gym = sys.modules.get("gym")
    if gym is None or isinstance(env, gymnasium.Env) or not isinstance(env, gym.Env):
        return env
    from stable_baselines3.common.vec_env import patch_gym

    return patch_gym._patch_env(env)


_handed_out: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def own_copy(env: Any) -> Any:
    """A copy, if another slot of this process has the same env.

    With one process per env, `[lambda: env] * 8` gives every slot a copy of its own;
    with several slots in one worker it would give them one env together.
    """
    if not isinstance(env, gymnasium.Env):
        return env  # refused later, with an explanation
    if _handed_out.get(id(env.unwrapped)) is env.unwrapped:
        env = deepcopy(env)
    _handed_out[id(env.unwrapped)] = env.unwrapped
    return env
