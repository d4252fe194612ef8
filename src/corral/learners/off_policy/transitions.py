"""Collected rows and episodes as the columns of a replay."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.tree import mapped
from corral.learners.off_policy.policy import CHOSEN
from corral.learners.off_policy.vectors import ObsVector
from corral.rollouts.episode import Episode
from corral.rollouts.rollout import Rollout

Columns = dict[str, NDArray[Any]]


def columns_for(obs: int, action: int) -> dict[str, int]:
    """Return the columns of a replay and their widths."""
    return {"obs": obs, "action": action, "reward": 1, "terminated": 1, "next_obs": obs}


def of_episode(episode: Episode, observe: ObsVector) -> Columns:
    """Return the transitions of a whole episode; a truncated one is not terminated."""
    obs = observe(episode.obs)
    terminated = np.zeros(len(obs), np.bool_)
    terminated[-1:] = episode.terminated
    return {
        "obs": obs,
        "action": episode.extras[CHOSEN],
        "reward": np.asarray(episode.reward),
        "terminated": terminated,
        "next_obs": np.concatenate([obs[1:], observe(episode.final_obs)]),
    }


def of_rollout(rollout: Rollout, observe: ObsVector) -> Columns:
    """Return the valid transitions of a rollout, row by row."""
    shape = rollout.reward.shape
    obs = _by_row(observe, rollout.obs, shape)
    following = np.concatenate([obs[1:], observe(rollout.next_obs)[None]])
    if rollout.ended.any():
        following[rollout.ended] = observe(rollout.final_obs)
    columns = {
        "obs": obs,
        "action": rollout.extras[CHOSEN],
        "reward": rollout.reward,
        "terminated": rollout.terminated,
        "next_obs": following,
    }
    return {name: values[rollout.valid] for name, values in columns.items()}


def _by_row(observe: ObsVector, obs: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    flat = mapped(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), obs)
    return observe(flat).reshape(*shape, -1)
