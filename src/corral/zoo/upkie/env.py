"""Upkie, a robot on two wheels, balancing in PyBullet: the published package, to train.

    obs      pitch, ground position, pitch rate, ground velocity
    action   ground velocity to aim for, in m/s
    reward   1 for every step on its wheels; an episode ends when it falls

The package leaves rewards and time limits to its users, opens a window and keeps to
real time unless told otherwise. Its calls to PyBullet name no simulator, so several
such envs in one process break each other: they want a process each.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import gymnasium

from corral.errors import MissingExtra

try:
    import upkie.envs
except ImportError as error:
    raise MissingExtra(
        f"this env needs upkie and PyBullet ({error}); PyBullet has wheels up to "
        "Python 3.11: pip install 'corral[upkie]'"
    ) from error

ID = "Upkie-PyBullet-Pendulum"
INIT_RAND = {"pitch": 0.2, "v_x": 0.1, "omega_y": 0.1}
"""How far from upright and at rest episodes begin at most."""


class Standing(gymnasium.RewardWrapper[Any, Any]):
    """A reward of 1 for every step."""

    def reward(self, reward: Any) -> float:
        """The same whatever it was."""
        return 1.0


def make(
    *,
    max_steps: int | None = 300,
    init_rand: Mapping[str, float] | None = None,
    **kwargs: Any,
) -> gymnasium.Env[Any, Any]:
    """One robot, without window and clock.

    Args:
        max_steps: an episode is truncated after so many; None: never.
        init_rand: what `update_init_rand` is given at first; INIT_RAND if None.
        **kwargs: of the package's own env.
    """
    # Falls are what episodes end with here, thousands of times.
    logging.getLogger("upkie").setLevel(logging.ERROR)
    if ID not in gymnasium.registry:
        upkie.envs.register()
    given = {"gui": False, "regulate_frequency": False, **kwargs}
    env = gymnasium.make(ID, disable_env_checker=True, **given)
    spread = INIT_RAND if init_rand is None else init_rand
    env.get_wrapper_attr("update_init_rand")(**spread)
    env = Standing(env)
    return env if max_steps is None else gymnasium.wrappers.TimeLimit(env, max_steps)
