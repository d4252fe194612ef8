"""Where two values differ, in words; bits, types and structure count."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from corral.tools.testing.values import part_of

MAX_VALUE_CHARACTERS = 160
"""Characters of a value that are shown."""


def difference(got: Any, expected: Any, where: str = "") -> str:
    """Where the first is not the second; "" if it is nowhere."""
    if isinstance(expected, np.ndarray) or isinstance(got, np.ndarray):
        return _of_arrays(got, expected, where)
    if type(got) is not type(expected):
        return _difference_text(got, expected, where)
    if isinstance(expected, dict):
        return _of_dicts(got, expected, where)
    if isinstance(expected, (list, tuple)):
        if len(got) != len(expected):
            return _difference_text(got, expected, where)
        pairs = enumerate(zip(got, expected, strict=True))
        found = (difference(a, b, f"{where}[{place}]") for place, (a, b) in pairs)
        return next(filter(None, found), "")
    if isinstance(expected, (float, np.floating)):
        same = got == expected or (got != got and expected != expected)
        return "" if same else _difference_text(got, expected, where)
    return "" if got == expected else _difference_text(got, expected, where)


def _of_arrays(got: Any, expected: Any, where: str) -> str:
    alike = type(got) is type(expected) and got.dtype == expected.dtype
    if not alike or got.shape != expected.shape:
        return _difference_text(got, expected, where)
    if got.dtype == object:
        return difference(got.tolist(), expected.tolist(), where)
    equal = got.tobytes() == expected.tobytes()
    return "" if equal else _difference_text(got, expected, where)


def _of_dicts(got: dict[Any, Any], expected: dict[Any, Any], where: str) -> str:
    if got.keys() != expected.keys():
        more = sorted(map(repr, got.keys() - expected.keys()))
        less = sorted(map(repr, expected.keys() - got.keys()))
        return f"{where} has keys {more} too many and lacks {less}"
    found = (difference(got[key], expected[key], f"{where}[{key!r}]") for key in got)
    return next(filter(None, found), "")


def _difference_text(got: Any, expected: Any, where: str) -> str:
    return f"{where} is {_shown(got)} instead of {_shown(expected)}"


def _shown(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, np.ndarray):
        kind += f" {value.dtype}{value.shape}"
    text = " ".join(repr(value).split())
    return f"{text[:MAX_VALUE_CHARACTERS]} ({kind})"


def obs_difference(
    space: spaces.Space[Any], batch: Any, position: int, expected: Any, where: str
) -> str:
    """The same of one slot's observation in a batch."""
    got = canonical(space, part_of(space, batch, position))
    return difference(got, canonical(space, expected), where)


def canonical(space: spaces.Space[Any], value: Any) -> Any:
    """An observation with arrays where its space has arrays, of whatever dtype."""
    if isinstance(space, spaces.Dict):
        return {key: canonical(part, value[key]) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, value, strict=True)
        return tuple(canonical(part, item) for part, item in pairs)
    return np.asarray(value) if isinstance(value, np.generic) else value


def with_arrays(value: Any) -> Any:
    """An observation with arrays in the place of single numbers of any type."""
    if isinstance(value, dict):
        return {key: with_arrays(part) for key, part in value.items()}
    if type(value) is tuple:
        return tuple(map(with_arrays, value))
    return np.asarray(value) if isinstance(value, (int, np.generic)) else value
