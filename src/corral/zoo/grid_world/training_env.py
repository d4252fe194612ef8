"""The grid world for training; workers import this, so it imports no learner."""

from __future__ import annotations

from typing import Any

from corral.engine.adapters.flattened_agents import FlattenedAgents
from corral.engine.adapters.pettingzoo import multi_env
from corral.engine.keywords import check_choice
from corral.zoo import grid_world


def make(
    view: str = "flattened",
    reward: str = "sum",
    render_mode: str | None = None,
    **arguments: Any,
) -> Any:
    """Make one grid world, in the form that its learner needs.

    Args:
        view: "flattened" for all agents as one; "shared" for one policy of each agent.
        reward: ("flattened") how the agents' rewards are combined: "sum" or "mean".
        render_mode: "rgb_array", or None.
        **arguments: for the grid world itself: size, ground, air, goal, max_steps, ...
    """
    check_choice("view", view, ("flattened", "shared"))
    env = grid_world.parallel_env(render_mode=render_mode, **arguments)
    return FlattenedAgents(env, reward) if view == "flattened" else multi_env(env)
