"""A cheetah that is to run at a speed; the task is that speed."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from corral.zoo.meta.mujoco_task import HORIZON, MujocoTask, Stepped

FASTEST = 3.0


class CheetahVel(MujocoTask):
    """Gymnasium's half cheetah: reward = -|v - task| - 0.05 Σa²; no early end."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__("half_cheetah.xml", 20, render_mode)

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw speeds."""
        return rng.uniform(0.0, FASTEST, size=count)

    def step(self, action: NDArray[np.float32]) -> Stepped:
        """Move for 0.05 s."""
        before = self.data.qpos[0]
        self.do_simulation(action, self.frame_skip)
        velocity = float((self.data.qpos[0] - before) / self.dt)
        control = 0.05 * float(np.square(action).sum())
        if self.render_mode == "human":
            self.render()
        reward = -abs(velocity - self.task) - control
        return self.observed(), reward, False, False, {"velocity": velocity}

    def observed(self) -> NDArray[np.float64]:
        """Return all positions but x, all velocities, and where the torso is."""
        torso = self.get_body_com("torso")
        return np.concatenate([self.data.qpos[1:], self.data.qvel, torso])


def make(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make the env with its time limit of 200 steps."""
    return gymnasium.wrappers.TimeLimit(CheetahVel(render_mode), HORIZON)
