"""Several agents that draw their actions, each from a copy of its own space."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space

from corral.engine.worker.seeds import episode_seed


class SamplingAgents:
    """What the agents of a PettingZoo env may see and do."""

    def __init__(self, env: Any, seed: int) -> None:
        self.observation_spaces: dict[str, Space[Any]] = {}
        self.action_spaces: dict[str, Space[Any]] = {}
        self._drawing: dict[str, Space[Any]] = {}
        for number, agent in enumerate(env.possible_agents):
            self.observation_spaces[agent] = env.observation_space(agent)
            self.action_spaces[agent] = space = env.action_space(agent)
            self._drawing[agent] = copy.deepcopy(space)
            self._drawing[agent].seed(episode_seed(seed, number) & 0x7FFFFFFF)

    def draw(self, agent: str, obs: Any, info: Any) -> Any:
        """An action that its mask allows, where it has one."""
        mask = _mask(obs)
        if mask is None:
            mask = _mask(info)
        if mask is None:
            return self._drawing[agent].sample()
        return self._drawing[agent].sample(np.asarray(mask, np.int8))


def _mask(holder: Any) -> Any:
    return holder.get("action_mask") if isinstance(holder, Mapping) else None
