"""A grid world with unlike agents, as PettingZoo Parallel and AEC environments.

    from corral.zoo import grid_world

    env = grid_world.parallel_env(size="small", ground=2, air=1)
    env = grid_world.env()                                      # the same, by turns

Agents look for a target that moves, without being seen by it. Those on the ground see
5 x 5 cells and are held up by obstacles; those in the air see up to 7 x 7, the more the
higher they fly and the less surely, and clouds hide what is below. They have different
observations and different numbers of actions, and leave one at a time.
"""

from __future__ import annotations

from corral.zoo.grid_world.parallel import GridWorld, env, parallel_env

__all__ = ["GridWorld", "env", "parallel_env"]
