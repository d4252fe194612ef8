"""A grid world with different agents, as PettingZoo Parallel and AEC environments.

    from corral.zoo import grid_world

    env = grid_world.parallel_env(size="small", ground=2, air=1)
    env = grid_world.env()                                      # the same, AEC

Agents look for a moving target without being seen by it. Agents on the ground see 5 x 5
cells and are blocked by obstacles. Agents in the air see up to 7 x 7 cells: the higher,
the more cells and the less reliably, and clouds hide other agents. The two kinds have
different observations and numbers of actions, and agents leave one at a time.
"""

from __future__ import annotations

from corral.zoo.grid_world.parallel import GridWorld, env, parallel_env

__all__ = ["GridWorld", "env", "parallel_env"]
