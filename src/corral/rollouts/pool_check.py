"""Checks that an argument is a pool."""

from __future__ import annotations

from typing import Any

from corral.errors import OptionError


def check_pool(thing: Any) -> None:
    """Raise OptionError if this is not a pool, and say what to pass."""
    if hasattr(thing, "send_reset") and hasattr(thing, "recv"):
        return
    made = "corral.Pool(env, num_envs=8)"
    if isinstance(thing, str):
        made = f"corral.Pool({thing!r}, num_envs=8)"
    if hasattr(thing, "pool"):
        made = "its own, envs.pool, or " + made
    raise OptionError(f"pool is {thing!r:.80}; pass a pool: {made}")
