"""Upkie, a robot on two wheels, balancing in PyBullet: the `upkie` package.

    obs      pitch, ground position, pitch rate, ground velocity
    action   target ground velocity, in m/s
    reward   1 for every step; an episode ends when the robot falls

The package leaves rewards and time limits to its users, and by default opens a window
and runs in real time. Its calls to PyBullet pass no simulator id, so several envs in
one process interfere: each needs a process of its own, or `in_process=True`.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium

from corral.engine.adapters.isolation import ISOLATION_KEY
from corral.errors import OptionError, requires
from corral.train.sinks.window import check_display

with requires(
    "this env needs upkie and PyBullet ({error}); PyBullet has wheels up to "
    "Python 3.11: pip install 'corral[upkie]'"
):
    import upkie.envs

    from corral.zoo.bullet_pendulum.camera import picture
    from corral.zoo.bullet_pendulum.client import Client
    from corral.zoo.upkie.in_process import make_robot

ID = "Upkie-PyBullet-Pendulum"
# Largest deviation from upright and at rest at the start of an episode.
INIT_RAND = {"pitch": 0.2, "v_x": 0.1, "omega_y": 0.1}
RENDER_MODES = ("human", "rgb_array")


class Standing(gymnasium.RewardWrapper[Any, Any]):
    """A reward of 1 for every step, and frames.

    Args:
        env: the package's.
        shares: whether several may share a process.
        render_mode: None, "human" or "rgb_array".
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], shares: bool, render_mode: str | None
    ) -> None:
        super().__init__(env)
        self._mode = render_mode
        # Of the robot's own simulator, which the package may call without its number.
        self._client = Client()
        self._client.number = env.unwrapped.backend._bullet  # type: ignore[attr-defined]
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            "render_fps": round(env.get_wrapper_attr("frequency") or 200),
            ISOLATION_KEY: "shared" if shares else "slot",
        }

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]
        """As it was asked for; the package has none."""
        return self._mode

    def reward(self, reward: Any) -> float:
        """Replace the reward by 1."""
        return 1.0

    def render(self) -> Any:
        """A picture that follows the robot; PyBullet's window draws itself."""
        if self._mode != "rgb_array":
            return None
        robot = self.unwrapped.backend.robot_id  # type: ignore[attr-defined]
        (x, y, _), _ = self._client.getBasePositionAndOrientation(robot)
        return picture(self._client, (x + 0.75, y - 0.9, 0.6), (x, y, 0.3))


def make(
    *,
    env_id: str = ID,
    in_process: bool = False,
    max_steps: int | None = 300,
    init_rand: Mapping[str, float] | None = None,
    render_mode: str | None = None,
    **kwargs: Any,
) -> gymnasium.Env[Any, Any]:
    """Make one robot, without a window and not in real time.

    Args:
        env_id: one of the package's ids with PyBullet, such as Upkie-PyBullet-Servos.
        in_process: several such robots may share a process.
        max_steps: steps after which an episode is truncated; None: no limit.
        init_rand: arguments of the first `update_init_rand` (default: INIT_RAND).
        render_mode: "rgb_array" for frames, "human" for PyBullet's window and real
            time, or None.
        **kwargs: arguments of the package's env.
    """
    # The package logs every fall, and most episodes end with one.
    logging.getLogger("upkie").setLevel(logging.ERROR)
    if ID not in gymnasium.registry:
        upkie.envs.register()
    if render_mode not in (None, *RENDER_MODES):
        raise OptionError(
            f"render_mode is {render_mode!r}; use 'rgb_array', 'human' or None"
        )
    window = render_mode == "human"
    if window:  # without a display PyBullet ends the process
        check_display('render_mode="human"', ["DISPLAY"])
    given = {
        "gui": window,
        "regulate_frequency": window,
        "frequency_checks": False,  # a line for each step that is late
        **kwargs,
    }
    spec = _spec(env_id, in_process)
    env = gymnasium.make(spec, disable_env_checker=True, **given)
    spread = INIT_RAND if init_rand is None else init_rand
    env.get_wrapper_attr("update_init_rand")(**spread)
    env = Standing(env, in_process, render_mode)
    return env if max_steps is None else gymnasium.wrappers.TimeLimit(env, max_steps)


def _spec(env_id: str, in_process: bool) -> Any:
    known = [name for name in gymnasium.registry if "-PyBullet-" in name]
    if env_id not in known:
        raise OptionError(f"env_id is {env_id!r}; use one of {', '.join(known)}")
    spec = copy.copy(gymnasium.spec(env_id))
    if in_process:
        _, _, name = str(spec.entry_point).partition(":")
        spec.entry_point = partial(make_robot, name)
    return spec
