"""Corral: many reinforcement-learning environments in parallel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.core import EnvSpec, Step
    from corral.faces.gymnasium_env import make
    from corral.mapping import map
    from corral.pool import Pool
    from corral.workers.context import this_worker

_HOMES = {
    "EnvSpec": "corral.core",
    "Pool": "corral.pool",
    "Step": "corral.core",
    "make": "corral.faces.gymnasium_env",
    "map": "corral.mapping",
    "this_worker": "corral.workers.context",
}

__all__ = ["EnvSpec", "Pool", "Step", "make", "map", "this_worker"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Lazy, so that a worker process imports what it runs and nothing else.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'corral' has no attribute {name!r}")
