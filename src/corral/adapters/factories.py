"""What a user gives as an environment -> one factory per slot."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import find_highest_version, parse_env_id

from corral.core import Factory
from corral.errors import OptionError

Wrap = Callable[[Any], Any]


def make_registered(env_id: str, kwargs: dict[str, Any]) -> Any:
    """Build a registered env, in the worker."""
    return gymnasium.make(env_id, **kwargs)


def wrapped(factory: Factory, wrappers: Sequence[Wrap]) -> Any:
    """Build an env and put wrappers around it, the first one innermost."""
    env = factory()
    for wrap in wrappers:
        env = wrap(env)
    return env


def factories_for(
    env: str | Factory | Sequence[Factory],
    num_envs: int | None,
    env_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Wrap] = (),
) -> list[Factory]:
    """One factory per slot, checked as far as that goes without building anything."""
    chosen = _chosen(env, num_envs)
    kwargs = dict(env_kwargs or {})
    if isinstance(env, str):
        _check_registered(env)
        chosen = [functools.partial(make_registered, env, kwargs)] * len(chosen)
    elif kwargs:
        made = {id(f): functools.partial(f, **kwargs) for f in chosen}
        chosen = [made[id(factory)] for factory in chosen]
    if wrappers:
        around = {id(f): functools.partial(wrapped, f, tuple(wrappers)) for f in chosen}
        chosen = [around[id(factory)] for factory in chosen]
    return chosen


def batched_factories_for(
    env: str | Factory | Sequence[Factory],
    num_envs: int | None,
    env_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Wrap] = (),
) -> list[Factory]:
    """The factory of batched envs, once for each slot."""
    if not (isinstance(env, str) or callable(env)):
        raise OptionError(
            f"batched=True takes one factory for all slots, or an id, not {env!r:.80}; "
            "it is called with num_envs, once in each worker"
        )
    factory: Any = env
    if isinstance(env, str):
        _check_registered(env)
        factory = functools.partial(make_registered_batch, env)
    if env_kwargs:
        factory = functools.partial(factory, **env_kwargs)
    if wrappers:
        factory = functools.partial(wrapped_batch, factory, tuple(wrappers))
    return _chosen(factory, num_envs)


def make_registered_batch(env_id: str, num_envs: int, **kwargs: Any) -> Any:
    """Build a registered env's own vectorised form, in the worker."""
    mode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
    return gymnasium.make_vec(env_id, num_envs, vectorization_mode=mode, **kwargs)


def wrapped_batch(
    factory: Callable[..., Any], wrappers: Sequence[Wrap], slots: range, num_envs: int
) -> Any:
    """Build a batched env and put wrappers around it, the first one innermost."""
    env = called_for(factory, slots)
    for wrap in wrappers:
        env = wrap(env)
    return env


def called_for(factory: Callable[..., Any], slots: range) -> Any:
    """Call the factory of a batched env; with its slots too, if it takes them."""
    known: dict[str, Any] = {"slots": slots} if takes(factory, "slots") else {}
    return factory(num_envs=len(slots), **known)


def takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function has a parameter of this name."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function of C
        return False


def _chosen(
    env: str | Factory | Sequence[Factory], num_envs: int | None
) -> list[Factory]:
    if isinstance(env, str) or callable(env):
        count = 1 if num_envs is None else num_envs
        if not is_count(count):
            raise OptionError(f"num_envs is {num_envs!r}; it must be an integer >= 1")
        return [env] * int(count)  # type: ignore[list-item]
    if isinstance(env, gymnasium.Env):
        raise OptionError(
            f"an environment ({env}) was given, not a way to make one; "
            "pass its id or a function that returns it"
        )
    if not isinstance(env, Sequence):
        raise OptionError(
            f"expected an environment id, a factory or a list of factories, got {env!r}"
        )
    for position, factory in enumerate(env):
        if not callable(factory):
            raise OptionError(
                f"item {position} of the list is {factory!r}, not callable"
            )
    if not env or (num_envs is not None and num_envs != len(env)):
        raise OptionError(
            f"num_envs is {num_envs!r} and {len(env)} factories were given; "
            "give one factory per slot, at least one"
        )
    return list(env)  # type: ignore[arg-type]


def is_count(value: object) -> bool:
    """Whether it is a whole number >= 1, numpy's included; True is none."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and value >= 1  # type: ignore[operator]


def _check_registered(env_id: str) -> None:
    """Refuse a name that no process can make, with the near ones."""
    name = env_id.rpartition(":")[2]
    if ":" in env_id or name in gymnasium.registry:
        return
    try:
        namespace, short, version = parse_env_id(name)
    except gymnasium.error.Error as error:
        raise OptionError(f"{env_id!r} is no name for an environment") from error
    # A name without a version means its latest one.
    if version is None and find_highest_version(namespace, short) is not None:
        return
    near = difflib.get_close_matches(name, list(gymnasium.registry), n=3)
    hint = f"; near names: {', '.join(near)}" if near else ""
    raise OptionError(f"no environment {env_id!r} is registered{hint}")
