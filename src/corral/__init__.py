"""Corral: many reinforcement-learning environments in parallel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral import errors
    from corral.core import EnvSpec, Step
    from corral.faces.gymnasium_make import make
    from corral.layout.codec import StandIn, register_codec
    from corral.mapping import map
    from corral.pool import Pool
    from corral.workers.context import this_worker

_HOMES = {
    "EnvSpec": "corral.core",
    "Pool": "corral.pool",
    "StandIn": "corral.layout.codec",
    "Step": "corral.core",
    "make": "corral.faces.gymnasium_make",
    "map": "corral.mapping",
    "register_codec": "corral.layout.codec",
    "this_worker": "corral.workers.context",
}

__all__ = [
    "EnvSpec",
    "Pool",
    "StandIn",
    "Step",
    "errors",
    "make",
    "map",
    "register_codec",
    "this_worker",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Lazy, so that a worker process imports what it runs and nothing else.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in ("dropin", "errors"):
        return importlib.import_module(f"corral.{name}")
    raise AttributeError(f"module 'corral' has no attribute {name!r}")
