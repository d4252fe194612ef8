"""Advantages and returns of the rows of a rollout.

Arrays are `[rows, slots]`, as a rollout has them. What follows a row, going backwards:

    row t ends an episode, terminated     nothing
                           truncated      `bootstrap[t]`, the value of its last obs
    row t continues, row t + 1 is valid   the return of row t + 1
                     row t + 1 is padding the value of the obs in row t + 1
    row t is padding                      its own value, so its advantage is 0

So no return crosses the end of an episode, and padding rows teach nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError

Floats = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]
Float64 = NDArray[np.float64]


def gae(
    reward: Floats,
    value: Floats,
    terminated: Flags,
    truncated: Flags,
    valid: Flags,
    bootstrap: Floats,
    next_value: Floats,
    *,
    gamma: float = 0.99,
    lam: float = 0.95,
) -> tuple[Float64, Float64]:
    """Generalised advantage estimates, and the returns they stand for.

        advantage, returns = gae(
            rollout.reward, rollout.extras["value"], rollout.terminated,
            rollout.truncated, rollout.valid, rollout.bootstrap, rollout.next_value,
        )

    Args:
        reward: `[rows, slots]`, as all that follow.
        value: the value of each row's observation.
        terminated: where an episode ended by itself.
        truncated: where it was cut off.
        valid: False for padding rows, whose advantage is 0.
        bootstrap: the value of the last observation of truncated episodes.
        next_value: `[slots]`, the value of the observation after the last row.
        gamma: the discount per step.
        lam: GAE's lambda; 0 uses the next value only, 1 all rewards of the episode.

    Returns:
        Advantages, and returns (advantage + value), in float64.
    """
    _check(reward, value, terminated, truncated, valid, bootstrap, next_value)
    expected = np.asarray(value, np.float64)
    following = np.asarray(next_value, np.float64)
    after = np.where(truncated, bootstrap, np.vstack([expected[1:], following]))
    after = np.where(terminated, 0.0, after)
    # An infinite reward makes nan of 0 times infinity; the learner reports it.
    with np.errstate(invalid="ignore", over="ignore"):
        delta = np.where(valid, reward + gamma * after - expected, 0.0)
        keep = np.where(terminated | truncated | ~valid, 0.0, gamma * lam)
        advantage = np.empty_like(delta)
        following = np.zeros(delta.shape[1])
        for row in range(len(delta) - 1, -1, -1):
            following = delta[row] + keep[row] * following
            advantage[row] = following
        return advantage, advantage + expected


def _check(reward: Floats, *others: NDArray[Any]) -> None:
    names = ("value", "terminated", "truncated", "valid", "bootstrap", "next_value")
    for name, array in zip(names, others, strict=True):
        expected = reward.shape[1:] if name == "next_value" else reward.shape
        if reward.ndim != 2 or array.shape != expected:
            raise OptionError(
                f"{name} has shape {array.shape}; expected {expected}: reward is "
                f"[rows, slots] and has shape {reward.shape}"
            )
