"""A pool before a policy leads it: it has to be one, and nothing may be under way."""

from __future__ import annotations

from typing import Any

from corral.engine.pool import Pool
from corral.errors import EnvError, OptionError


def check_pool(thing: Any) -> None:
    """Refuse what is no pool, nor used as one, and say what to pass."""
    if hasattr(thing, "send_reset") and hasattr(thing, "recv"):
        return
    made = "corral.Pool(env, num_envs=8)"
    if isinstance(thing, str):
        made = f"corral.Pool({thing!r}, num_envs=8)"
    if hasattr(thing, "pool"):
        made = "its own, envs.pool, or " + made
    raise OptionError(f"pool is {thing!r:.80}; pass a pool: {made}")


def drain(pool: Pool) -> None:
    """Wait for whatever is under way, and drop it."""
    while pool.waiting:
        try:
            pool.recv()
        except EnvError:  # of a step that nobody wants; its slot is reset next
            pass
