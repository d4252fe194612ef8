"""Vectors of environments, to be the whole shard of a worker."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from corral import this_worker


class Flock(VectorEnv[Any, Any, Any]):
    """Single envs behind one call, which leaves their resets to whoever has it.

    One observation buffer for all steps and resets, overwritten each time.
    """

    def __init__(self, make: Callable[[], Any], num_envs: int) -> None:
        self.members = [make() for _ in range(num_envs)]
        self.num_envs = num_envs
        first = self.members[0]
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = first.observation_space
        self.single_action_space = first.action_space
        self.observation_space = batch_space(first.observation_space, num_envs)
        self.action_space = batch_space(first.action_space, num_envs)
        self._buffer = create_empty_array(first.observation_space, num_envs)
        self._latest: list[Any] = [None] * num_envs
        self.calls = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.calls += 1
        infos: dict[str, Any] = {}
        mask = options.pop("reset_mask")
        tasks = options.pop("tasks", None)
        assert len(seed) == self.num_envs and mask.dtype == np.bool_
        for row in np.flatnonzero(mask).tolist():
            given = dict(options)
            if tasks is not None:
                given["task"] = tasks[row]
            member = self.members[row]
            obs, info = member.reset(seed=seed[row], options=given or None)
            self._latest[row] = deepcopy(obs)
            infos = self._add_info(infos, info, row)
        return self._joined(), infos

    def step(self, actions: Any, step_mask: Any = None) -> Any:
        self.calls += 1
        rewards = np.zeros(self.num_envs)
        flags = np.zeros((2, self.num_envs), np.bool_)
        infos: dict[str, Any] = {}
        for row, action in enumerate(iterate(self.action_space, actions)):
            if step_mask is None or step_mask[row]:
                obs, reward, *ends, info = self.members[row].step(action)
                self._latest[row] = deepcopy(obs)
                rewards[row], flags[:, row] = reward, ends
                infos = self._add_info(infos, info, row)
        return self._joined(), rewards, *flags, infos

    def _joined(self) -> Any:
        some = next(obs for obs in self._latest if obs is not None)
        rows = [some if obs is None else obs for obs in self._latest]
        return concatenate(self.single_observation_space, rows, self._buffer)

    def close_extras(self, **kwargs: Any) -> None:
        for member in self.members:
            member.close()


class Herd(Flock):
    """The same, stepped as a whole or not at all."""

    def step(self, actions: Any) -> Any:  # type: ignore[override]
        return super().step(actions)


class Sums(gymnasium.Env[Any, Any]):
    """Adds up its actions, from where its task or its options say."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, longest: int = 5) -> None:
        self._longest = longest

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        options = options or {}
        self.task = options.get("task")
        if self.task == "impossible":
            raise ValueError("no such task")
        self._left = int(self.np_random.integers(1, self._longest + 1))
        self._sum = float(options.get("start", 0.0)) + (self.task or 0.0)
        return self._observe(), {"task": self.task or 0.0}

    def step(self, action: Any) -> Any:
        if action[0] > 0.99:
            raise RuntimeError("too much")
        self._sum += float(action[0]) + self.np_random.normal()
        self._left -= 1
        ended = self._left <= 0
        info = {"cost": {"sum": self._sum}} if ended else {}
        return self._observe(), self._sum, False, ended, info

    def _observe(self) -> Any:
        return np.array([self._sum, self._left])


def flock_of_sums(num_envs: int, slots: range) -> Flock:
    """A factory that wants to know its slots."""
    flock = Flock(Sums, num_envs)
    flock.slots = slots  # type: ignore[attr-defined]
    assert slots == this_worker().slots
    return flock


class Own(VectorEnv[Any, Any, Any]):
    """Counts down, and restarts episodes by itself within the step that ends one."""

    single_observation_space = spaces.Box(0, 100, (1,), np.float64)
    single_action_space = spaces.Discrete(2)
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._left = self.np_random.integers(2, 6, self.num_envs).astype(float)
        return self._left[:, None].copy(), {}

    def step(self, actions: Any) -> Any:
        self._left -= 1 + actions
        ended = self._left <= 0
        infos: dict[str, Any] = {}
        if ended.any():
            infos = {
                "final_obs": self._left[:, None].copy(),
                "_final_obs": ended,
                "final_info": {"left": self._left.copy(), "_left": ended},
                "_final_info": ended,
            }
            fresh = self.np_random.integers(2, 6, self.num_envs)
            self._left[ended] = fresh[ended]
        none = np.zeros(self.num_envs, np.bool_)
        return self._left[:, None].copy(), np.ones(self.num_envs), ended, none, infos


def actions_for(space: spaces.Space[Any], slots: int, steps: int) -> list[list[Any]]:
    """[slot][step]; they depend on nothing else."""
    actions: list[list[Any]] = []
    for slot in range(slots):
        own = deepcopy(space)
        own.seed(slot)
        actions.append([own.sample() for _ in range(steps)])
    return actions
