"""Environments that are registered with Gymnasium, by id or by spec."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, parse_env_id


def make_registered(env: str | EnvSpec, kwargs: dict[str, Any]) -> Any:
    """Build a registered env, in the worker."""
    return gymnasium.make(env, **kwargs)


def make_registered_batch(env: str | EnvSpec, num_envs: int, **kwargs: Any) -> Any:
    """Build a registered env's own vectorised form, in the worker."""
    mode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
    return gymnasium.make_vec(env, num_envs, vectorization_mode=mode, **kwargs)


def is_registered(env_id: str) -> bool:
    """Whether Gymnasium can make it; a name without a version means its latest one."""
    try:
        namespace, name, version = parse_env_id(env_id)
    except gymnasium.error.Error:
        return False
    if version is None and find_highest_version(namespace, name) is not None:
        return True
    return env_id in gymnasium.registry


def near_names(name: str, names: Iterable[str]) -> str:
    """The end of an error that lists similar names, if there are any."""
    near = difflib.get_close_matches(name, list(dict.fromkeys(names)), n=3)
    return f"; near names: {', '.join(near)}" if near else ""
