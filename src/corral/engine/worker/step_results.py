"""Read what an env returned by Gymnasium's rules, or refuse it with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from corral.errors import SpaceMismatch


def five_of(result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """What a step returned, if it can be read as Gymnasium's five values."""
    try:
        obs, reward, terminated, truncated, info = result
    except (TypeError, ValueError):
        old = isinstance(result, tuple) and len(result) == 4
        raise SpaceMismatch(
            f"env.step() returned {counted(result)}. It must return `observation, "
            f"reward, terminated, truncated, info`{_FROM_OLD if old else ''}"
        ) from None
    return obs, reward, terminated, truncated, info


_FROM_OLD = (
    ": `done` of the old gym API is `terminated`, or `truncated` where a time limit "
    "ended the episode. For an env that you cannot change: "
    'gymnasium.make("GymV21Environment-v0", env=env), once '
    "`pip install 'shimmy[gym-v21]'` was run"
)


def two_of(result: Any) -> tuple[Any, Any]:
    """What a reset returned, if it can be read as Gymnasium's two values."""
    try:
        obs, info = result
    except (TypeError, ValueError):
        obs, info = result, None
    # An observation alone may have two parts as well, or two keys: the second is not an
    # info. `dict` comes first because to ask an abstract class takes 0.2 µs.
    if not isinstance(info, (dict, Mapping)):
        raise SpaceMismatch(
            f"env.reset() returned {counted(result)}. It must return `observation, "
            "info`, where info is a dict: `return observation, {}`"
        )
    return obs, info


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


def defined_at(adapter: Any, name: str) -> str:
    """Where the env's own `step` or `reset` is, as a traceback shows it; else ""."""
    env = getattr(adapter, "env", None)
    method = getattr(type(getattr(env, "unwrapped", env)), name, None)
    code = getattr(method, "__code__", None)
    if code is None:
        return ""
    return (
        f'\nWhat returned it:\n  File "{code.co_filename}", line '
        f"{code.co_firstlineno}, in {name}\n"
    )
