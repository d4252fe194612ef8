"""What an env returned, read by Gymnasium's rules, or refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.errors import SpaceMismatch


def five_of(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """What a step returned, if it can be read as Gymnasium's five values."""
    try:
        obs, reward, terminated, truncated, info = result
    except (TypeError, ValueError):
        raise SpaceMismatch(
            f"env.step() returned {counted(result)}; Gymnasium's API is "
            "`observation, reward, terminated, truncated, info = env.step(action)`"
        ) from None
    return obs, reward, terminated, truncated, info


def as_reward(value: Any) -> float:
    """A reward as a number: scalars of any type, and arrays of one element."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise SpaceMismatch(
            f"reward is {value!r:.80} ({type(value).__name__}, shape {array.shape}); "
            "it must be one number"
        )
    return float(array.reshape(()))


def counted(value: Any) -> str:
    """How an error names what an env returned."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)} values"
    return f"{value!r:.80} ({type(value).__name__})"
