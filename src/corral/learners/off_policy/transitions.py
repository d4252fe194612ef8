"""Collected rows and episodes as the columns of a replay."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.tree import mapped
from corral.errors import TrainingDiverged
from corral.learners.off_policy.policy import CHOSEN
from corral.learners.off_policy.vectors import ObsVector
from corral.rollouts.episodic import Episode
from corral.rollouts.normalise import check_finite
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
    all_obs = np.concatenate([obs, observe(episode.final_obs)])
    reward = np.asarray(episode.reward)
    _check_finite("observation", all_obs, episode)
    _check_finite("reward", reward, episode)
    return {
        "obs": obs,
        "action": episode.extras[CHOSEN],
        "reward": reward,
        "terminated": terminated,
        "next_obs": all_obs[1:],
    }


def _check_finite(name: str, values: NDArray[Any], episode: Episode) -> None:
    bad = ~np.isfinite(values).reshape(len(values), -1).all(1)
    if bad.any():
        step = int(bad.argmax())
        raise TrainingDiverged(
            f"the env returned the {name} {values[step]} at step {step} of the episode "
            f"with seed {episode.seed}; this episode was not stored. Fix the env, or "
            "let it end the episode before its numbers diverge"
        )


def of_rollout(rollout: Rollout, observe: ObsVector) -> Columns:
    """Return the valid transitions of a rollout, row by row."""
    shape = rollout.reward.shape
    obs = _by_row(observe, rollout.obs, shape)
    following = np.concatenate([obs[1:], observe(rollout.next_obs)[None]])
    if rollout.ended.any():
        following[rollout.ended] = observe(rollout.final_obs)
    check_finite(obs, None, rollout.valid)
    check_finite(following, rollout.reward, rollout.valid)
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
