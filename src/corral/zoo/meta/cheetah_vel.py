"""A cheetah that is to run at a speed; the task is that speed."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from numpy.typing import NDArray

HORIZON = 200
FRAME_SKIP = 5
FASTEST = 3.0


class CheetahVel(MujocoEnv):  # type: ignore[misc]
    """Gymnasium's half cheetah: reward = -|v - task| - 0.05 Σa²; it never ends early."""

    metadata: ClassVar[dict[str, Any]] = {
        "render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"],
        "render_fps": 20,
    }

    def __init__(self, render_mode: str | None = None) -> None:
        shape = gymnasium.spaces.Box(-np.inf, np.inf, (20,), np.float64)
        super().__init__("half_cheetah.xml", FRAME_SKIP, shape, render_mode=render_mode)
        self._speed = 0.0

    def sample_tasks(
        self, count: int, rng: np.random.Generator
    ) -> list[NDArray[np.float64]]:
        """Draw tasks."""
        return [np.array([speed]) for speed in rng.uniform(0.0, FASTEST, size=count)]

    def set_task(self, task: Any) -> None:
        """Run at this speed from the next episode on."""
        (speed,) = np.ravel(task)
        self._speed = float(speed)

    def get_task(self) -> NDArray[np.float64]:
        """Return the speed."""
        return np.array([self._speed])

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """Move for 0.05 s."""
        before = self.data.qpos[0]
        self.do_simulation(action, self.frame_skip)
        velocity = float((self.data.qpos[0] - before) / self.dt)
        control = 0.05 * float(np.square(action).sum())
        reward = -abs(velocity - self._speed) - control
        if self.render_mode == "human":
            self.render()
        return self._observed(), reward, False, False, {"velocity": velocity}

    def reset_model(self) -> NDArray[np.float64]:
        """Start near the resting pose."""
        count_q, count_v = self.model.nq, self.model.nv
        position = self.init_qpos + self.np_random.uniform(-0.1, 0.1, count_q)
        velocity = self.init_qvel + 0.1 * self.np_random.standard_normal(count_v)
        self.set_state(position, velocity)
        return self._observed()

    def _observed(self) -> NDArray[np.float64]:
        torso = self.get_body_com("torso")
        return np.concatenate([self.data.qpos[1:], self.data.qvel, torso])


def make(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make the env with its time limit of 200 steps."""
    return gymnasium.wrappers.TimeLimit(CheetahVel(render_mode), HORIZON)
