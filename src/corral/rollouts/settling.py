"""Bringing a pool to rest, whatever somebody left under way."""

from __future__ import annotations

from corral.errors import EnvError
from corral.pool import Pool


def settle(pool: Pool) -> None:
    """Wait for whatever is under way, and drop it."""
    while pool.waiting:
        try:
            pool.recv()
        except EnvError:  # of a step that nobody wants; its slot is reset next
            pass
