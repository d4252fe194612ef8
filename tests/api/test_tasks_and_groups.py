"""Every API takes `repeat` and `task_by`, and they mean the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import corral
from tests.api.matching_env import Matching
from tests.api.multi_envs import Crowd

GROUPS = [7, 7, 8, 8]


def level(env: Any, task: int) -> None:
    env.unwrapped.level = task


class Levelled(Crowd):
    @property
    def unwrapped(self) -> Any:
        return self


def always_three(slot: int, episode: int, rng: np.random.Generator) -> int:
    return 3


OPTIONS = {"backend": "serial", "repeat": 2, "task_by": level}


def test_several_agents() -> None:
    envs = corral.make_multi(Levelled, 4, sample_task=always_three, **OPTIONS)
    envs.reset(seed=7)
    assert envs._last is not None and envs._last.seed.tolist() == GROUPS
    assert envs.pool.call("level") == (3,) * 4
    envs.close()


def test_first_ready() -> None:
    envs = corral.make_async("CartPole-v1", 4, seed=7, **OPTIONS)
    assert envs.pool.task_by is level
    envs.async_reset()
    obs = envs.recv()[0]
    assert (obs[0] == obs[1]).all() and (obs[2] == obs[3]).all()
    assert (obs[0] != obs[2]).any()
    envs.close()


@pytest.mark.parametrize("api", ["gymnasium", "sb3"])
def test_one_policy_for_all_agents(api: str) -> None:
    if api == "sb3":
        pytest.importorskip("stable_baselines3")
    envs = corral.make_shared_policy(Matching, 4, api=api, seed=7, **OPTIONS)
    envs.reset() if api == "sb3" else envs.reset(seed=7)
    assert envs.shared.last.seed.tolist() == GROUPS
    envs.close()
