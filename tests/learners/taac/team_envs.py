"""Teams for the tests of TAAC; they follow PettingZoo's API without importing it."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

AGENTS = ["one", "two", "three"]


class Team:
    """What the teams here have in common."""

    metadata: dict[str, Any] = {"name": "team_v0", "is_parallelizable": True}  # noqa: RUF012
    possible_agents = AGENTS
    render_mode = None

    def __init__(self, continuous: bool = False) -> None:
        self.agents: list[str] = []
        self.random = np.random.default_rng()
        self._action: Any = spaces.Discrete(3, start=2)
        if continuous:
            self._action = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return self._action

    def close(self) -> None:
        pass


class Squad(Team):
    """Agents come and go by chance, and everything that happens is kept in `log`.

    A log entry: agent -> (seen, action, reward, terminated, truncated, seen next).
    """

    def __init__(self, continuous: bool = False, masks: bool = False) -> None:
        super().__init__(continuous)
        self.masks = masks
        self.log: list[dict[str, tuple[Any, ...]]] = []

    def observation_space(self, agent: str) -> Any:
        return SQUAD_SPACE

    def _look(self) -> dict[str, Any]:
        return {
            agent: self.random.normal(size=(2, 2)).astype(np.float32)
            for agent in self.agents
        }

    def _told(self) -> dict[str, Any]:
        if not self.masks:
            return {agent: {} for agent in self.agents}
        return {
            agent: {"action_mask": np.array([1, place, 1 - place], np.int8)}
            for agent in self.agents
            for place in [int(self.random.integers(2))]
        }

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        count = int(self.random.integers(1, 4))
        self.agents = AGENTS[:count]
        self._left = int(self.random.integers(2, 9))
        self._seen = self._look()
        return self._seen, self._told()

    def step(self, actions: dict[str, Any]) -> Any:
        self._left -= 1
        before = list(self.agents)
        newcomers = [one for one in AGENTS if one not in before]
        rewards = {agent: float(self.random.normal()) for agent in before}
        dead = {agent: bool(self.random.random() < 0.12) for agent in before}
        late = {
            agent: self._left <= 0 or bool(self.random.random() < 0.12)
            for agent in before
        }
        seen = self._look()
        self.log.append(
            {
                agent: (
                    self._seen[agent],
                    np.array(actions[agent]),
                    rewards[agent],
                    dead[agent],
                    late[agent],
                    seen[agent],
                )
                for agent in before
            }
        )
        staying = [one for one in before if not (dead[one] or late[one])]
        self.agents = staying
        if staying and self.random.random() < 0.3:
            self.agents = [*staying, *newcomers]
            more = self._look()
            seen = seen | {agent: more[agent] for agent in newcomers}
        self._seen = {agent: seen[agent] for agent in self.agents}
        told = {**{agent: {} for agent in before}, **self._told()}
        return seen, rewards, dead, late, told


SQUAD_SPACE = spaces.Box(-np.inf, np.inf, (2, 2), np.float32)


class PassItOn(Team):
    """Each agent sees a bit, and has to say the bit of the next one: ask around.

    Four numbers are seen: the own bit, and who one is.
    """

    LENGTH = 8

    def observation_space(self, agent: str) -> Any:
        return PASS_SPACE

    def _look(self) -> dict[str, Any]:
        self._bits = self.random.integers(0, 2, 3)
        return {
            agent: np.array([self._bits[at], *(np.arange(3) == at)], np.float32)
            for at, agent in enumerate(AGENTS)
        }

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.agents = list(AGENTS)
        self._time = 0
        return self._look(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, Any]) -> Any:
        wanted = np.roll(self._bits, -1)
        rewards = {
            agent: self._paid(actions[agent], int(wanted[at]))
            for at, agent in enumerate(AGENTS)
        }
        self._time += 1
        late = dict.fromkeys(AGENTS, self._time == self.LENGTH)
        seen = self._look()
        if self._time == self.LENGTH:
            self.agents = []
        return (
            seen,
            rewards,
            dict.fromkeys(AGENTS, False),
            late,
            {agent: {} for agent in AGENTS},
        )

    def _paid(self, action: Any, bit: int) -> float:
        if isinstance(self._action, spaces.Discrete):
            return float(int(action) == 2 + bit)
        return 1.0 - float(abs(action[0] - (2 * bit - 1))) / 2


PASS_SPACE = spaces.Box(0.0, 1.0, (4,), np.float32)
