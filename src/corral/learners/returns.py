"""Returns: what a row was worth, from the rewards that came after it.

Arrays are `[rows, slots]`, as a rollout has them. The way back through a slot's rows:

    row t ends an episode, terminated     nothing comes after it
                           truncated      what would have come: `bootstrap[t]`
    row t goes on, row t + 1 is valid     what row t + 1 was worth
                   row t + 1 is filler    the value of what was seen there
    row t is filler                       it is worth what was expected: advantage 0

So nothing of one episode reaches another, and no filler row is learned from.
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
        value: what the policy expected of each row's observation.
        terminated: where an episode ended by itself.
        truncated: where it was cut off.
        valid: False for filler, whose advantage is 0.
        bootstrap: what was expected of the last observation of truncated episodes.
        next_value: `[slots]`, what was expected of what follows the last row.
        gamma: the discount.
        lam: 0 trusts the next value, 1 the rewards to the end of the episode.

    Returns:
        Advantages, and returns (advantage + value), in float64.
    """
    _check(reward, value, terminated, truncated, valid, bootstrap, next_value)
    expected = np.asarray(value, np.float64)
    after = _expected_after(expected, terminated, truncated, bootstrap, next_value)
    # An infinite reward makes nan of 0 times infinity; whoever learns from it says so.
    with np.errstate(invalid="ignore", over="ignore"):
        delta = np.where(valid, reward + gamma * after - expected, 0.0)
        keep = np.where(terminated | truncated | ~valid, 0.0, gamma * lam)
        advantage = np.empty_like(delta)
        following = np.zeros(delta.shape[1])
        for row in range(len(delta) - 1, -1, -1):
            following = delta[row] + keep[row] * following
            advantage[row] = following
        return advantage, advantage + expected


def discounted(
    reward: Floats,
    value: Floats,
    terminated: Flags,
    truncated: Flags,
    valid: Flags,
    bootstrap: Floats,
    next_value: Floats,
    *,
    gamma: float = 0.99,
) -> Float64:
    """Rewards to the end of the episode, or of the rollout; arguments as for `gae`."""
    flags = terminated, truncated, valid
    return gae(reward, value, *flags, bootstrap, next_value, gamma=gamma, lam=1.0)[1]


def n_step(
    reward: Floats,
    value: Floats,
    terminated: Flags,
    truncated: Flags,
    valid: Flags,
    bootstrap: Floats,
    next_value: Floats,
    *,
    steps: int,
    gamma: float = 0.99,
) -> Float64:
    """The next `steps` rewards and what was expected after them; fewer before an end.

    Arguments as for `gae`. A filler row's return is its value.
    """
    if steps < 1:
        raise OptionError(f"steps is {steps!r}; it must be >= 1")
    _check(reward, value, terminated, truncated, valid, bootstrap, next_value)
    expected = np.asarray(value, np.float64)
    after = _expected_after(expected, terminated, truncated, bootstrap, next_value)
    goes_on = valid & ~(terminated | truncated)
    # One step more each time: a row's return over k + 1 rewards is its own reward and
    # the next row's return over k.
    returns = np.where(valid, reward + gamma * after, expected)
    for _ in range(min(steps, len(reward)) - 1):
        following = returns[1:]
        longer = reward[:-1] + gamma * following
        returns[:-1] = np.where(goes_on[:-1], longer, returns[:-1])
    return returns


def _expected_after(
    value: Float64,
    terminated: Flags,
    truncated: Flags,
    bootstrap: Floats,
    next_value: Floats,
) -> Float64:
    """What was expected of that which followed each row."""
    after = np.concatenate([value[1:], np.asarray(next_value, np.float64)[None]])
    after = np.where(truncated, bootstrap, after)
    return np.where(terminated, 0.0, after)


def _check(reward: Floats, *others: NDArray[Any]) -> None:
    names = ("value", "terminated", "truncated", "valid", "bootstrap", "next_value")
    for name, array in zip(names, others, strict=True):
        expected = reward.shape[1:] if name == "next_value" else reward.shape
        if reward.ndim != 2 or array.shape != expected:
            raise OptionError(
                f"{name} has shape {array.shape}; expected {expected}: reward is "
                f"[rows, slots] and has shape {reward.shape}"
            )
