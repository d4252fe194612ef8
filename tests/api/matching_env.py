"""Agents that are paid for doing what they see, so that learners have a task.

It follows PettingZoo's ParallelEnv without importing it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

CHOICES, STEPS, EARLY = 3, 10, 5


class Matching:
    """Two agents see a number and are paid 1 for naming it; one leaves early."""

    metadata: dict[str, Any] = {"name": "matching_v0"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012
    render_mode = None

    def __init__(self) -> None:
        self.random = np.random.default_rng()

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0.0, 1.0, (CHOICES,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(CHOICES)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.time = 0
        self.agents = list(self.possible_agents)
        return self._look(), {agent: {} for agent in self.agents}

    def _look(self) -> dict[str, Any]:
        self.shown = {a: int(self.random.integers(CHOICES)) for a in self.agents}
        return {a: np.eye(CHOICES, dtype=np.float32)[n] for a, n in self.shown.items()}

    def step(self, actions: dict[str, Any]) -> Any:
        self.time += 1
        present = list(self.agents)
        rewards = {a: float(actions[a] == self.shown[a]) for a in present}
        observations = self._look()
        terminated = {a: a == "b" and self.time == EARLY for a in present}
        truncated = dict.fromkeys(present, self.time == STEPS)
        self.agents = [a for a in present if not (terminated[a] or truncated[a])]
        infos: dict[str, Any] = {agent: {} for agent in present}
        return observations, rewards, terminated, truncated, infos

    def close(self) -> None:
        pass

    @property
    def unwrapped(self) -> Any:
        return self


class Lenient(Matching):
    """Remembers whose actions it was given, and asks for none; can be held up."""

    def wait_at(self, gate: str) -> None:
        with open(gate):  # a named pipe: until somebody opens its other end
            pass

    def step(self, actions: dict[str, Any]) -> Any:
        self.given = dict(actions)
        return super().step({"a": 0, "b": 0, **actions})


class Undecided(Matching):
    """Tells what to do, or None, as AgileRL's algorithms are told it."""

    def __init__(self, told: Any) -> None:
        super().__init__()
        self.told = told

    def step(self, actions: dict[str, Any]) -> Any:
        *rest, _ = super().step(actions)
        told = {"env_defined_actions": self.told, "why": None, "name": "x"}
        return *rest, {"a": told, "b": None}
