"""Upkie, a robot on two wheels, balancing in PyBullet: the `upkie` package.

    obs      pitch, ground position, pitch rate, ground velocity
    action   target ground velocity, in m/s
    reward   1 for every step; an episode ends when the robot falls

The package leaves rewards and time limits to its users, and by default opens a window
and runs in real time. Its calls to PyBullet pass no simulator id, so several envs in
one process interfere: each needs a process of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import gymnasium

from corral.errors import requires

with requires(
    "this env needs upkie and PyBullet ({error}); PyBullet has wheels up to "
    "Python 3.11: pip install 'corral[upkie]'"
):
    import upkie.envs

ID = "Upkie-PyBullet-Pendulum"
# Largest deviation from upright and at rest at the start of an episode.
INIT_RAND = {"pitch": 0.2, "v_x": 0.1, "omega_y": 0.1}


class Standing(gymnasium.RewardWrapper[Any, Any]):
    """A reward of 1 for every step."""

    def reward(self, reward: Any) -> float:
        """Replace the reward by 1."""
        return 1.0


def make(
    *,
    max_steps: int | None = 300,
    init_rand: Mapping[str, float] | None = None,
    **kwargs: Any,
) -> gymnasium.Env[Any, Any]:
    """Make one robot, without a window and not in real time.

    Args:
        max_steps: steps after which an episode is truncated; None: no limit.
        init_rand: arguments of the first `update_init_rand` (default: INIT_RAND).
        **kwargs: arguments of the package's env.
    """
    # The package logs every fall, and most episodes end with one.
    logging.getLogger("upkie").setLevel(logging.ERROR)
    if ID not in gymnasium.registry:
        upkie.envs.register()
    given = {"gui": False, "regulate_frequency": False, **kwargs}
    env = gymnasium.make(ID, disable_env_checker=True, **given)
    spread = INIT_RAND if init_rand is None else init_rand
    env.get_wrapper_attr("update_init_rand")(**spread)
    env = Standing(env)
    return env if max_steps is None else gymnasium.wrappers.TimeLimit(env, max_steps)
