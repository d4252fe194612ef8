"""What a first look at an env found; the checks after it plan with that."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gymnasium.envs.registration import load_env_creator

from corral.engine.adapters.isolation import edition_of, subject_of
from corral.tools.doctor.driver import EpisodeDriver


@dataclass(frozen=True, slots=True)
class EnvProfile:
    """What can be seen of an env that was played once."""

    subject: str
    edition: str
    kind: str
    """gymnasium | parallel | aec"""
    steps: int
    """Moments that a run of it has in the other checks."""
    metadata: dict[str, Any]
    render_mode: str | None
    arguments: dict[str, Any]
    """What it was made with, as far as that can be seen."""


def profile_of(driver: EpisodeDriver, steps: int) -> EnvProfile:
    """The profile of an env that was played for so many resets and steps."""
    env = driver.env
    plain = (str, int, float, bool, list, tuple, type(None))
    metadata = (getattr(env, "metadata", None) or {}).items()
    return EnvProfile(
        subject_of(env),
        edition_of(env),
        driver.env_driver.kind,
        steps,
        {str(key): value for key, value in metadata if isinstance(value, plain)},
        getattr(env, "render_mode", None),
        arguments_of(env),
    )


def arguments_of(env: Any) -> dict[str, Any]:
    """Plain values of arguments: of its registration, else what its parts remember."""
    found: dict[str, Any] = {}
    spec: Any = getattr(env, "spec", None)
    creator = getattr(spec, "entry_point", None)
    if creator is not None:
        made_by = load_env_creator(creator) if isinstance(creator, str) else creator
        found |= {**parameters_of(made_by), **spec.kwargs}
    while env is not None:
        inside = getattr(env, "__dict__", {})
        for one in parameters_of(type(env)):
            found[one] = inside.get(f"_{one}", inside.get(one, found.get(one)))
        env = inside.get("env")
    return {key: value for key, value in found.items() if type(value) in (bool, str)}


def parameters_of(made_by: Callable[..., Any]) -> dict[str, Any]:
    """The names that a factory can be given, and their defaults."""
    try:
        parameters = inspect.signature(made_by).parameters.values()
    except (TypeError, ValueError):  # written in C
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {one.name: one.default for one in parameters if one.kind in named}
