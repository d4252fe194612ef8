"""Pendulum-v1 of which only the velocity is seen: it has to be swung up from memory."""

from __future__ import annotations

from typing import Any

import gymnasium

from corral.zoo.positions import ShownPart

# The pendulum's third number.
VELOCITY = [2]


def make(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make Pendulum-v1 without its angle."""
    return ShownPart(gymnasium.make("Pendulum-v1", render_mode=render_mode), VELOCITY)
