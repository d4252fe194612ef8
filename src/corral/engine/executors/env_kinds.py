"""Which slots have envs of one kind: a trial of two of them is then enough.

Factories are of one kind if they differ in numbers alone: a rank, a seed, a port. All
other arguments (ids, classes, paths, options) must be equal.
"""

from __future__ import annotations

import functools
import hashlib
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.core import Factory
from corral.engine.worker import serialization

MAX_KINDS = 3
"""Each kind is tried with two envs; with more kinds there is no trial."""
MAX_DEPTH = 6


def slots_to_probe(factories: Sequence[Factory]) -> list[int]:
    """Slots whose envs are tried together; none if there are too many kinds."""
    kinds: dict[Any, list[int]] = {}
    shapes: dict[int, Any] = {}
    for slot, factory in enumerate(factories):
        if id(factory) not in shapes:
            shapes[id(factory)] = _shape(factory, MAX_DEPTH)
        kinds.setdefault(shapes[id(factory)], []).append(slot)
    if len(kinds) > MAX_KINDS:
        return []
    return [slot for slots in kinds.values() for slot in slots[:2]]


def _shape(value: Any, depth: int) -> Any:
    """Equal for values that differ in numbers alone."""
    if value is None or isinstance(value, (bool, str, bytes, type)):
        return value
    if isinstance(value, (int, float, np.number)):
        return "a number"
    inside = _parts(value) if depth else None
    if inside is None:
        return _digest(value)
    what, parts = inside
    return what, tuple(_shape(part, depth - 1) for part in parts)


def _parts(value: Any) -> tuple[Any, Sequence[Any]] | None:
    """A value's type and its parts; None if it cannot be taken apart."""
    if isinstance(value, functools.partial):
        names = tuple(value.keywords)
        return ("partial", names), [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, types.FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        return ("function", value.__code__), [*cells, *(value.__defaults__ or ())]
    if isinstance(value, types.MethodType):
        return ("method", value.__func__), [value.__self__]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, value
    if isinstance(value, dict):
        return ("dict", tuple(map(repr, value))), list(value.values())
    return None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has none yet
        return None


def _digest(value: Any) -> Any:
    try:
        return hashlib.sha256(serialization.dumps(value)).digest()
    except Exception:  # it cannot be pickled, so it is equal to itself alone
        return "this one", id(value)
