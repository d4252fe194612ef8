"""A MuJoCo body with a task of one number: what ant_dir and cheetah_vel share."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs import mujoco
from numpy.typing import NDArray

HORIZON = 200
FRAME_SKIP = 5
Stepped = tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]
_Env: Any = mujoco.MujocoEnv


class MujocoTask(_Env):  # type: ignore[misc]
    """One of Gymnasium's bodies; a step takes 0.05 s.

    Args:
        model: the file of the body.
        size: numbers of an observation.
        render_mode: as in Gymnasium.
    """

    metadata = {  # noqa: RUF012, as Gymnasium declares it
        "render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"],
        "render_fps": 20,
    }

    def __init__(self, model: str, size: int, render_mode: str | None) -> None:
        space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)
        super().__init__(model, FRAME_SKIP, space, render_mode=render_mode)
        self.task = 0.0

    def sample_tasks(
        self, count: int, rng: np.random.Generator
    ) -> list[NDArray[np.float64]]:
        """Draw tasks."""
        return [np.array([number]) for number in self.draw(count, rng)]

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw the numbers of tasks."""
        raise NotImplementedError

    def set_task(self, task: Any) -> None:
        """Use this task from the next episode on."""
        (number,) = np.ravel(task)
        self.task = float(number)

    def get_task(self) -> NDArray[np.float64]:
        """Return the task."""
        return np.array([self.task])

    def reset_model(self) -> NDArray[np.float64]:
        """Start near the resting pose."""
        count_q, count_v = self.model.nq, self.model.nv
        position = self.init_qpos + self.np_random.uniform(-0.1, 0.1, count_q)
        velocity = self.init_qvel + 0.1 * self.np_random.standard_normal(count_v)
        self.set_state(position, velocity)
        return self.observed()

    def observed(self) -> NDArray[np.float64]:
        """Return the observation."""
        raise NotImplementedError
