"""Values in nested dicts, tuples and lists, and a function of every leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


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
