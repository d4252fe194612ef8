"""Where two runs of an env differ: the first moment, the field, and both values."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from corral.tools.doctor.driver import EnvResponse

# What has to be equal. Infos may hold times and the like.
FIELDS = ("obs", "reward", "terminated", "truncated")


def first_difference(one: Sequence[EnvResponse], other: Sequence[EnvResponse]) -> str:
    """In words; "" if there is none, as far as the shorter one goes."""
    for ours, theirs in zip(one, other, strict=False):
        if ours.what != theirs.what:
            return f"{ours.what} came where {theirs.what} was"
        for name in FIELDS:
            found = difference(name, getattr(ours, name), getattr(theirs, name))
            if found:
                return f"{ours.what}: {found}"
    return ""


def difference(path: str, one: Any, other: Any) -> str:
    """The first place within a value; "" if both have the same bits."""
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            return f"{path} has keys {_shown(list(one))} and {_shown(list(other))}"
        parts = [(f"{path}[{key!r}]", one[key], other[key]) for key in one]
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            return f"{path} has {len(one)} and {len(other)} elements"
        pairs = zip(one, other, strict=True)
        parts = [(f"{path}[{place}]", *pair) for place, pair in enumerate(pairs)]
    elif isinstance(one, (np.ndarray, np.generic, int, float)):
        return _of_numbers(path, np.asarray(one), np.asarray(other))
    else:
        equal = _is_equal(one, other)
        return "" if equal else f"{path} is {_shown(one)} and {_shown(other)}"
    found = (difference(*part) for part in parts)
    return next((text for text in found if text), "")


def _of_numbers(path: str, one: Any, other: Any) -> str:
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{path} is {one.dtype} {one.shape} and {other.dtype} {other.shape}"
    if one.tobytes() == other.tobytes():
        return ""
    pairs = zip(one.flat, other.flat, strict=True)
    apart = [ours.tobytes() != theirs.tobytes() for ours, theirs in pairs]
    place = np.unravel_index(apart.index(True), one.shape)
    if place:
        path += f"[{', '.join(str(int(number)) for number in place)}]"
    values = [array[place].item() for array in (one, other)]
    # As many digits as it takes to tell them apart.
    shown = [f"{v:.4g}" if isinstance(v, float) else repr(v) for v in values]
    if shown[0] == shown[1]:
        shown = [repr(value) for value in values]
    return f"{path} is {shown[0]} and {shown[1]}"


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two objects of an env's own classes are; comparing them may raise."""
    with suppress(Exception):
        if one == other:
            return True
    with suppress(Exception):
        return pickle.dumps(one) == pickle.dumps(other)
    return False


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except Exception:  # its own __repr__ failed
        return type(value).__name__
