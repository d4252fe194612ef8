"""Copies of what an env returned, so that the env cannot change them later.

In worker processes pickling does this. Where the env runs in the caller's process, an
info or a mailed observation would change with the env: a list of all rewards so far
would be the same list in every step.
"""

from __future__ import annotations

import pickle
from copy import deepcopy
from typing import Any

import numpy as np

NUMPY_TYPES: frozenset[type] = frozenset(
    {np.bool_, np.float16, np.float32, np.float64, np.complex64, np.complex128}
    | {np.int8, np.int16, np.int32, np.int64}
    | {np.uint8, np.uint16, np.uint32, np.uint64}
)
_CONSTANT = NUMPY_TYPES | {type(None), bool, int, float, complex, str, bytes}
_NEW = object()


def owned_info(value: Any) -> Any:
    """A copy of the value; parts that are one object stay one object.

    Lists, tuples, sets, dicts and arrays are copied here, in half the time that
    `copy.deepcopy` takes, and everything else by `copy.deepcopy`, or by pickling where
    that fails. Two kinds of objects are not copied: those that can be copied in neither
    way, and those with a `close` or `__del__`, such as files, simulators and envs,
    since a copy would close what the env still uses.

    >>> path = [1]
    >>> kept = owned_info({"path": path, "again": path})
    >>> path.append(2)
    >>> kept, kept["path"] is kept["again"]
    ({'path': [1], 'again': [1]}, True)
    """
    return _owned(value, {})


def _owned(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if kind in _CONSTANT:
        return value
    made = memo.get(id(value), _NEW)
    if made is not _NEW:
        return made
    if kind is dict:
        made = memo[id(value)] = {}  # before its parts, one of which may be itself
        for key, part in value.items():
            made[key] = _owned(part, memo)
    elif kind is list:
        made = memo[id(value)] = []
        made.extend(_owned(part, memo) for part in value)
    elif kind is tuple:
        parts = tuple(_owned(part, memo) for part in value)
        made = memo.setdefault(id(value), parts)
    elif kind is set:
        made = memo[id(value)] = {_owned(part, memo) for part in value}
    elif kind is np.ndarray and not value.dtype.hasobject:
        made = memo[id(value)] = value.copy()
    else:
        made = memo[id(value)] = _copied(value, memo)
    return made


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if callable(getattr(kind, "close", None)) or hasattr(kind, "__del__"):
        return value
    try:
        return deepcopy(value, memo)
    except (Exception, SystemExit):
        pass  # a tensor that is part of a graph, and what cannot be copied at all
    try:
        return pickle.loads(pickle.dumps(value))
    except (Exception, SystemExit):
        return value
