"""Values in nested dicts, tuples and lists, and a function of every leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium import Space, spaces


def mapped(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Return the function's value for each leaf, in the same structure.

    >>> mapped(lambda a, b: a + b, {"x": (1, 2), "y": None}, {"x": (3, 4), "y": None})
    {'x': (4, 6), 'y': None}
    """
    if first is None:
        return None
    if isinstance(first, dict):
        return {
            key: mapped(function, part, *[other[key] for other in others])
            for key, part in first.items()
        }
    if isinstance(first, (tuple, list)):
        parts = [mapped(function, *each) for each in zip(first, *others, strict=True)]
        if hasattr(first, "_fields"):  # a named tuple takes its parts one by one
            return type(first)(*parts)
        return type(first)(parts)
    return function(first, *others)


def by_space(function: Callable[..., Any], space: Space[Any], *values: Any) -> Any:
    """Return the function's value for each leaf of a space and its values.

    >>> leaves = spaces.Dict({"x": spaces.Discrete(3), "y": spaces.Discrete(2)})
    >>> by_space(lambda leaf, value: (leaf.n, value), leaves, {"x": 1, "y": 0})
    {'x': (np.int64(3), 1), 'y': (np.int64(2), 0)}
    """
    if isinstance(space, spaces.Dict):
        return {
            key: by_space(function, part, *[value[key] for value in values])
            for key, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        each = zip(space.spaces, *values, strict=True)
        return tuple(by_space(function, *parts) for parts in each)
    return function(space, *values)
