"""A point that looks for a goal it cannot see; the task is where the goal is."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

HORIZON = 60
GOAL_RADIUS = 0.2
LONGEST_STEP = 0.1
START_LOW, START_HIGH = np.array([-1.5, -0.5]), np.array([1.5, 1.5])

Point = NDArray[np.float64]


class PointRobot(gymnasium.Env[Point, NDArray[np.float32]]):
    """Reward 1 within 0.2 of the goal, else 0; goals lie on the upper unit half circle.

    A policy that found the goal in one episode of a trial can go straight to it in the
    next, if it remembers: the smallest task that needs a memory.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Box(-LONGEST_STEP, LONGEST_STEP, (2,), np.float32)
        self._goal = np.array([0.0, 1.0])
        self._at = np.zeros(2)

    def sample_tasks(self, count: int, rng: np.random.Generator) -> list[Point]:
        """Draw goals."""
        angles = rng.uniform(0.0, np.pi, size=count)
        return [np.array([np.cos(angle), np.sin(angle)]) for angle in angles]

    def set_task(self, task: Any) -> None:
        """Use this goal from the next episode on."""
        x, y = np.ravel(task)
        self._goal = np.array([x, y], np.float64)

    def get_task(self) -> Point:
        """Return the goal."""
        return self._goal.copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Point, dict[str, Any]]:
        """Start anywhere in the field."""
        super().reset(seed=seed)
        self._at = self.np_random.uniform(START_LOW, START_HIGH)
        return self._at.copy(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[Point, float, bool, bool, dict[str, Any]]:
        """Move by the action."""
        self._at = self._at + np.clip(action, -LONGEST_STEP, LONGEST_STEP)
        found = np.linalg.norm(self._at - self._goal) <= GOAL_RADIUS
        return self._at.copy(), float(found), False, False, {}


def make() -> gymnasium.Env[Any, Any]:
    """Make the env with its time limit of 60 steps."""
    return gymnasium.wrappers.TimeLimit(PointRobot(), HORIZON)
