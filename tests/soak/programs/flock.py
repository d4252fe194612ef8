"""Environments of a kind as one batch, which leaves resets to whoever has it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from tests.soak.programs.env import build
from tests.soak.programs.kinds import Kind


class Flock(VectorEnv[Any, Any, Any]):
    """One buffer for all observations, written over by every call."""

    def __init__(self, num_envs: int, kind: Kind) -> None:
        self.members = [build(kind) for _ in range(num_envs)]
        self.num_envs = num_envs
        first = self.members[0]
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, num_envs)
        self.action_space = batch_space(first.action_space, num_envs)
        self._buffer: Any = create_empty_array(first.observation_space, num_envs)
        self._latest: list[Any] = [None] * num_envs

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Begin episodes where the mask is true, and nowhere else."""
        given = dict(options)
        mask, tasks = given.pop("reset_mask"), given.pop("tasks", None)
        infos: dict[str, Any] = {}
        for row in np.flatnonzero(mask).tolist():
            own = dict(given)
            if tasks is not None:
                own["task"] = tasks[row]
            obs, info = self.members[row].reset(seed=seed[row], options=own or None)
            self._latest[row] = deepcopy(obs)
            infos = self._add_info(infos, info, row)
        return self._joined(), infos

    def step(self, actions: Any, step_mask: Any = None) -> Any:
        """Step where the mask is true, or everywhere."""
        rewards = np.zeros(self.num_envs)
        flags = np.zeros((2, self.num_envs), np.bool_)
        infos: dict[str, Any] = {}
        for row, action in enumerate(iterate(self.action_space, actions)):
            if step_mask is None or step_mask[row]:
                obs, reward, *ends, info = self.members[row].step(deepcopy(action))
                self._latest[row] = deepcopy(obs)
                rewards[row], flags[:, row] = reward, ends
                infos = self._add_info(infos, info, row)
        return self._joined(), rewards, *flags, infos

    def _joined(self) -> Any:
        some = next(obs for obs in self._latest if obs is not None)
        rows = [some if obs is None else obs for obs in self._latest]
        return concatenate(self.single_observation_space, rows, self._buffer)

    def close_extras(self, **_: Any) -> None:
        """Close every member."""
        for member in self.members:
            member.close()
