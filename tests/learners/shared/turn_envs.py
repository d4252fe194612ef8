"""Games in turn in which agents come, go and are paid by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pettingzoo", reason="these envs are PettingZoo's AECEnvs")
from pettingzoo import AECEnv

AGENTS = ("red", "green", "blue")
SEEN = spaces.Box(-np.inf, np.inf, (2,), np.float32)
ACTIONS = spaces.Discrete(4, start=1)
Array = np.ndarray[Any, Any]


class Parlour(AECEnv):  # type: ignore[misc]
    """Whose turn it is, who is paid, who ends and who joins: all by chance.

    Chances are drawn from a generator of its own, whatever the seed of an episode.

    Args:
        number: of the generator.
        masks: whether infos have masks.
    """

    metadata = {"name": "parlour_v0"}  # noqa: RUF012

    def __init__(self, number: int = 0, masks: bool = False) -> None:
        super().__init__()
        self.random = np.random.default_rng(number)
        self.masks = masks
        self.possible_agents = list(AGENTS)
        self.render_mode = None

    def observation_space(self, agent: str) -> Any:
        return SEEN

    def action_space(self, agent: str) -> Any:
        return ACTIONS

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        count = 1 + int(self.random.integers(3))
        self.agents = [str(one) for one in self.random.permutation(AGENTS)[:count]]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.agent_selection = self.agents[0]
        self._look()

    def _look(self) -> None:
        self.seen = {
            one: self.random.normal(size=2).astype(np.float32)
            for one in self.possible_agents
        }
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        if self.masks:
            for agent in self.agents:
                mask = np.zeros(4, np.int8)
                mask[self.random.integers(4)] = 1
                self.infos[agent]["action_mask"] = mask

    def observe(self, agent: str) -> Array:
        return self.seen[agent]

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            if self.agents and self.agent_selection not in self._dead():
                self.agent_selection = str(self.random.choice(self.agents))
            return
        mask = self.infos[agent].get("action_mask")
        assert mask is None or mask[action - 1], "a forbidden action"
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        for one in self.agents:
            if self.random.random() < 0.5:
                self.rewards[one] = float(self.random.normal() + action)
        self._accumulate_rewards()
        for one in self.agents:
            ends = self.random.random(2) < 0.08
            self.terminations[one], self.truncations[one] = map(bool, ends)
        if self.random.random() < 0.15:
            self._join()
        self._look()
        living = [one for one in self.agents if one not in self._dead()]
        if living:
            self.agent_selection = str(self.random.choice(living))
        if self._dead():
            self._deads_step_first()

    def _dead(self) -> list[str]:
        ends = self.terminations, self.truncations
        return [one for one in self.agents if any(table[one] for table in ends)]

    def _join(self) -> None:
        absent = [one for one in self.possible_agents if one not in self.agents]
        for one in absent[:1]:
            self.agents.append(one)
            self.rewards[one] = self._cumulative_rewards[one] = 0.0
            self.terminations[one] = self.truncations[one] = False

    def close(self) -> None:
        pass
