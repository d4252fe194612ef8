"""Boxes that jump onto each other to build a tower, as a PettingZoo Parallel env.

    from corral.zoo import box_jump

    env = box_jump.parallel_env(num_boxes=4)
    env.set_task(3)                       # three of the four play the next episode

All boxes push, jump and stand on each other in one Box2D world, and are paid for the
height of the highest. A high tower needs most boxes to stand still as its base.
"""

from __future__ import annotations

from corral.zoo.box_jump.parallel import BoxJump, parallel_env
from corral.zoo.box_jump.rewards import MODES

__all__ = ["MODES", "BoxJump", "parallel_env"]
