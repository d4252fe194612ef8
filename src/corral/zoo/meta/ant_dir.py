"""An ant that is to walk in a direction; the task is its angle in radians."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from numpy.typing import NDArray

HORIZON = 200
FRAME_SKIP = 5
UPRIGHT = 0.2, 1.0
"""Heights of the torso between which an episode goes on."""
Tasks = Literal["circle", "forward_backward"]


class AntDir(MujocoEnv):  # type: ignore[misc]
    """Gymnasium's ant, rewarded for its speed along the task's angle.

    reward = v · (cos g, sin g) - 0.5 Σa² - 0.0005 Σ clip(contact forces, -1, 1)² + 1

    Args:
        tasks: directions to draw from: all around ("circle"), or the two that the
            original code uses, ±1 radian ("forward_backward").
        render_mode: as in Gymnasium.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"],
        "render_fps": 20,
    }

    def __init__(self, tasks: Tasks = "circle", render_mode: str | None = None) -> None:
        shape = gymnasium.spaces.Box(-np.inf, np.inf, (27,), np.float64)
        super().__init__("ant.xml", FRAME_SKIP, shape, render_mode=render_mode)
        self._angles = tasks
        self._angle = 0.0

    # Tasks ----------------------------------------------------------------------------

    def sample_tasks(
        self, count: int, rng: np.random.Generator
    ) -> list[NDArray[np.float64]]:
        """Draw tasks."""
        if self._angles == "forward_backward":
            angles = rng.choice([-1.0, 1.0], size=count)
        else:
            angles = rng.uniform(0.0, 2 * np.pi, size=count)
        return [np.array([angle]) for angle in angles]

    def set_task(self, task: Any) -> None:
        """Walk in this direction from the next episode on."""
        (angle,) = np.ravel(task)
        self._angle = float(angle)

    def get_task(self) -> NDArray[np.float64]:
        """Return the angle."""
        return np.array([self._angle])

    # Episodes -------------------------------------------------------------------------

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Move for 0.05 s."""
        before = self.get_body_com("torso")[:2].copy()
        self.do_simulation(action, self.frame_skip)
        velocity = (self.get_body_com("torso")[:2] - before) / self.dt
        direction = np.array([np.cos(self._angle), np.sin(self._angle)])
        forward = float(velocity @ direction)
        control = 0.5 * float(np.square(action).sum())
        forces = np.clip(self.data.cfrc_ext, -1.0, 1.0)
        contact = 0.5e-3 * float(np.square(forces).sum())
        reward = forward - control - contact + 1.0
        state = np.concatenate([self.data.qpos, self.data.qvel])
        upright = UPRIGHT[0] <= self.data.qpos[2] <= UPRIGHT[1]
        fallen = not (np.isfinite(state).all() and upright)
        info = {"forward": forward, "control": control, "contact": contact}
        if self.render_mode == "human":
            self.render()
        return self._observed(), reward, fallen, False, info

    def reset_model(self) -> NDArray[np.float64]:
        """Start near the upright pose."""
        count_q, count_v = self.model.nq, self.model.nv
        position = self.init_qpos + self.np_random.uniform(-0.1, 0.1, count_q)
        velocity = self.init_qvel + 0.1 * self.np_random.standard_normal(count_v)
        self.set_state(position, velocity)
        return self._observed()

    def _observed(self) -> NDArray[np.float64]:
        return np.concatenate([self.data.qpos[2:], self.data.qvel])


def make(render_mode: str | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make the env with its time limit of 200 steps."""
    return gymnasium.wrappers.TimeLimit(
        AntDir(render_mode=render_mode, **options), HORIZON
    )
