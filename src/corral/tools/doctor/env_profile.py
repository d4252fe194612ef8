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
    """What a first look at the env told; the checks after it plan with that."""

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
    """What can be told of an env that was played for so many resets and steps."""
    env = driver.env
    kind = type(driver.env_driver).__name__.removesuffix("Driver").lower()
    return EnvProfile(
        subject=subject_of(env),
        edition=edition_of(env),
        kind=kind,
        steps=steps,
        metadata={
            str(key): value
            for key, value in (getattr(env, "metadata", None) or {}).items()
            if isinstance(value, (str, int, float, bool, list, tuple, type(None)))
        },
        render_mode=getattr(env, "render_mode", None),
        arguments=arguments_of(env),
    )


def arguments_of(env: Any) -> dict[str, Any]:
    """Plain values of arguments: of its registration, else what its parts remember."""
    found: dict[str, Any] = {}
    spec = getattr(env, "spec", None)
    if spec is not None and getattr(spec, "entry_point", None) is not None:
        creator = spec.entry_point
        if isinstance(creator, str):
            creator = load_env_creator(creator)
        found |= {one.name: one.default for one in _parameters(creator)}
        found |= spec.kwargs
    while env is not None:
        inside = getattr(env, "__dict__", {})
        for one in _parameters(type(env)):
            for name in (one.name, f"_{one.name}"):
                found[one.name] = inside.get(name, found.get(one.name))
        env = inside.get("env")
    return {key: value for key, value in found.items() if type(value) in (bool, str)}


def _parameters(made_by: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(made_by).parameters.values())
    except (TypeError, ValueError):  # written in C
        return []
