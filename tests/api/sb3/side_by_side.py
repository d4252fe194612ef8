"""Two SB3 vector envs side by side: whatever one returns, the other has to return."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..side_by_side import assert_same

CLOCKED = "t"
"""The key of an episode's seconds, which no two runs share."""


def assert_same_sb3_run(
    ours: Any, theirs: Any, steps: int, seed: int | None = 7
) -> int:
    """Reset and step both, and compare every value; returns how many episodes ended."""
    for envs in (ours, theirs):
        envs.seed(seed)
    assert_same(ours.reset(), theirs.reset(), "reset")
    assert_same(ours.reset_infos, theirs.reset_infos, "reset_infos")
    theirs.action_space.seed(3)
    ended = 0
    for step in range(steps):
        actions = np.array([theirs.action_space.sample() for _ in range(ours.num_envs)])
        here, there = (
            without_clock(ours.step(actions)),
            without_clock(theirs.step(actions)),
        )
        assert_same(here, there, f"step {step}")
        assert_same(ours.reset_infos, theirs.reset_infos, f"reset_infos, step {step}")
        ended += int(there[2].sum())
    return ended


def without_clock(outcome: Any) -> Any:
    obs, rewards, dones, infos = outcome
    for info in infos:
        info.get("episode", {}).pop(CLOCKED, None)
    return obs, rewards, dones, list(infos)
