"""Gymnasium's own envs: numbers, no hashes, as their last bits may be the machine's."""

from __future__ import annotations

from typing import Any

import numpy as np

import corral

ENVS = {"CartPole-v1": None, "Pendulum-v1": 1}
"""Id -> how many numbers an action has; None: one of two."""
STEPS = 40


def rows(env: str, options: dict[str, Any]) -> dict[str, Any]:
    """Everything seen, as arrays."""
    found: dict[str, list[Any]] = {"obs": [], "reward": [], "ended": [], "seed": []}
    with corral.Pool(env, 3, seed=101, **options) as pool:
        found["obs"].append(pool.reset().obs)
        for step in range(STEPS):
            actions: Any = (np.arange(3) + step // 2) % 2
            if ENVS[env]:
                actions = (actions[:, None] * 2 - 1).astype(np.float32)
            result = pool.step(actions)
            found["obs"].append(result.obs)
            found["reward"].append(result.reward)
            found["ended"].append(result.ended)
            found["seed"].append(result.seed)
    return {name: np.stack(part) for name, part in found.items()}


def summary(played: dict[str, Any]) -> dict[str, Any]:
    """A few numbers of each: every tenth observation, sums, seeds, who ended when."""
    return {
        "obs": np.round(played["obs"][::10].astype(np.float64), 5).tolist(),
        "reward": np.round(played["reward"].sum(axis=0), 4).tolist(),
        "ended": np.argwhere(played["ended"]).tolist(),
        "seed": played["seed"][-1].tolist(),
    }
