"""The grid world for training; workers import this, so it imports no learner."""

from __future__ import annotations

from typing import Any

from corral.engine.adapters.flattened_agents import FlattenedAgents
from corral.engine.keywords import check_choice
from corral.zoo import grid_world


def make(reward: str = "sum", render_mode: str | None = None, **arguments: Any) -> Any:
    """Make one grid world.

    Args:
        reward: (view: joint) how the agents' rewards are combined: "sum" or "mean".
        render_mode: "rgb_array", or None.
        **arguments: for the grid world itself: size, ground, air, goal, max_steps, ...
    """
    check_choice("reward", reward, ("sum", "mean"))
    env = grid_world.parallel_env(render_mode=render_mode, **arguments)
    return env if reward == "sum" else FlattenedAgents(env, reward)
