"""Corral: many reinforcement-learning environments in parallel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral import errors
    from corral.core import EnvSpec, Step
    from corral.doctor.replay import replay
    from corral.faces.async_env import make_async
    from corral.faces.gymnasium_make import make
    from corral.faces.sb3_make import make_sb3
    from corral.layout.codec import StandIn, register_codec
    from corral.mapping import map
    from corral.pool import Pool
    from corral.pool.groups import take_turns, two_groups
    from corral.rollouts.trajectories import Trajectories
    from corral.workers.context import this_worker

_HOMES = {
    "EnvSpec": "corral.core",
    "Pool": "corral.pool",
    "StandIn": "corral.layout.codec",
    "Step": "corral.core",
    "Trajectories": "corral.rollouts.trajectories",
    "make": "corral.faces.gymnasium_make",
    "make_async": "corral.faces.async_env",
    "make_sb3": "corral.faces.sb3_make",
    "map": "corral.mapping",
    "register_codec": "corral.layout.codec",
    "replay": "corral.doctor.replay",
    "take_turns": "corral.pool.groups",
    "this_worker": "corral.workers.context",
    "two_groups": "corral.pool.groups",
}

__all__ = [
    "EnvSpec",
    "Pool",
    "StandIn",
    "Step",
    "Trajectories",
    "errors",
    "make",
    "make_async",
    "make_sb3",
    "map",
    "register_codec",
    "replay",
    "take_turns",
    "this_worker",
    "two_groups",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Lazy, so that a worker process imports what it runs and nothing else.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in ("dropin", "errors", "testing"):
        return importlib.import_module(f"corral.{name}")
    raise AttributeError(f"module 'corral' has no attribute {name!r}")
