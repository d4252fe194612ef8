"""Two vector envs side by side: whatever one returns, the other has to return."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

# What Gymnasium's own classes do depends on it: (1, 4).
GYMNASIUM = tuple(int(part) for part in gymnasium.__version__.split(".")[:2])


def assert_same(ours: Any, theirs: Any, where: str = "it") -> None:
    """The same structure, types, dtypes and values, all the way down."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict) and ours.keys() == theirs.keys(), (
            f"{where}: {ours} != {theirs}"
        )
        for key in theirs:
            assert_same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, (list, tuple)):
        assert isinstance(ours, type(theirs)) and len(ours) == len(theirs), where
        for position, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(mine, other, f"{where}[{position}]")
    elif isinstance(theirs, np.ndarray):
        assert isinstance(ours, np.ndarray), f"{where}: {type(ours)}"
        assert ours.dtype == theirs.dtype, f"{where}: {ours.dtype} != {theirs.dtype}"
        assert ours.shape == theirs.shape, f"{where}: {ours.shape} != {theirs.shape}"
        if theirs.dtype == object:
            assert_same(list(ours.flat), list(theirs.flat), where)
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=where)
    else:
        assert ours == theirs, f"{where}: {ours!r} != {theirs!r}"


def assert_same_run(
    ours: Any, theirs: Any, steps: int, *, seed: Any = 7, actions: Any = None
) -> int:
    """Reset and step both, and compare every value; returns how many episodes ended.

    With autoreset disabled, the slots that ended are reset by mask.
    """
    assert_same(ours.reset(seed=seed), theirs.reset(seed=seed), "reset")
    theirs.action_space.seed(3)
    disabled = theirs.metadata["autoreset_mode"].value == "Disabled"
    ended = 0
    for step in range(steps):
        action = theirs.action_space.sample()
        if actions is not None:
            action = actions(action)
        here, there = ours.step(action), theirs.step(action)
        assert_same(here, there, f"step {step}")
        over = there[2] | there[3]
        ended += int(over.sum())
        if disabled and over.any():
            # One dict each: Gymnasium takes the mask out of the one it is given.
            here = ours.reset(options={"reset_mask": over})
            there = theirs.reset(options={"reset_mask": over})
            assert_same(here, there, f"masked reset after step {step}")
    return ended
