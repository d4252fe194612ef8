"""An ant that is to walk in a direction; the task is its angle in radians."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

from corral.zoo.meta.mujoco_task import HORIZON, MujocoTask, Stepped

# Heights of the torso between which an episode continues.
UPRIGHT = 0.2, 1.0
Directions = Literal["circle", "forward_backward"]


class AntDir(MujocoTask):
    """Gymnasium's ant, rewarded for its speed along the task's angle.

    reward = v · (cos g, sin g) - 0.5 Σa² - 0.0005 Σ clip(contact forces, -1, 1)² + 1

    Args:
        directions: tasks to draw from: all around ("circle"), or the two that the
            original code has, ±1 radian ("forward_backward").
        render_mode: as in Gymnasium.
    """

    def __init__(
        self, directions: Directions = "circle", render_mode: str | None = None
    ) -> None:
        super().__init__("ant.xml", 27, render_mode)
        self._directions = directions

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw angles."""
        if self._directions == "forward_backward":
            return rng.choice([-1.0, 1.0], size=count)
        return rng.uniform(0.0, 2 * np.pi, size=count)

    def step(self, action: NDArray[np.float32]) -> Stepped:
        """Move for 0.05 s."""
        before = self.get_body_com("torso")[:2].copy()
        self.do_simulation(action, self.frame_skip)
        velocity = (self.get_body_com("torso")[:2] - before) / self.dt
        forward = float(velocity @ [np.cos(self.task), np.sin(self.task)])
        control = 0.5 * float(np.square(action).sum())
        forces = np.clip(self.data.cfrc_ext, -1.0, 1.0)
        contact = 0.5e-3 * float(np.square(forces).sum())
        state = np.concatenate([self.data.qpos, self.data.qvel])
        upright = UPRIGHT[0] <= self.data.qpos[2] <= UPRIGHT[1]
        fallen = not (np.isfinite(state).all() and upright)
        if self.render_mode == "human":
            self.render()
        info = {"forward": forward, "control": control, "contact": contact}
        return self.observed(), forward - control - contact + 1.0, fallen, False, info

    def observed(self) -> NDArray[np.float64]:
        """Return all positions but x and y, and all velocities."""
        return np.concatenate([self.data.qpos[2:], self.data.qvel])


def make(render_mode: str | None = None, **options: Any) -> gymnasium.Env[Any, Any]:
    """Make the env with its time limit of 200 steps."""
    env = AntDir(render_mode=render_mode, **options)
    return gymnasium.wrappers.TimeLimit(env, HORIZON)
