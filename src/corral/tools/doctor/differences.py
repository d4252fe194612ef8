"""Where two runs of an env part: the first moment, the field, and both values."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from corral.tools.doctor.env_response import EnvResponse

FIELDS = ("obs", "reward", "terminated", "truncated")
"""What has to be equal. Infos may hold times and the like."""


def first_difference(one: Sequence[EnvResponse], other: Sequence[EnvResponse]) -> str:
    """In words; "" if there is none, as far as the shorter one goes."""
    for ours, theirs in zip(one, other, strict=False):
        if ours.what != theirs.what:
            return f"{ours.what} came where {theirs.what} was"
        for name in FIELDS:
            found = _difference(name, getattr(ours, name), getattr(theirs, name))
            if found:
                return f"{ours.what}: {found}"
    return ""


def _difference(path: str, one: Any, other: Any) -> str:
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
    else:
        return _of_leaves(path, one, other)
    found = (_difference(*part) for part in parts)
    return next((text for text in found if text), "")


def _of_leaves(path: str, one: Any, other: Any) -> str:
    if not isinstance(one, (np.ndarray, np.generic, int, float, bool)):
        equal = _is_equal(one, other)
        return "" if equal else f"{path} is {_shown(one)} and {_shown(other)}"
    ours, theirs = np.asarray(one), np.asarray(other)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        kinds = [f"{array.dtype} {array.shape}" for array in (ours, theirs)]
        return f"{path} is {kinds[0]} and {kinds[1]}"
    if ours.tobytes() == theirs.tobytes():
        return ""
    if not ours.shape:
        return f"{path} is {_both(one, other)}"
    size = ours.dtype.itemsize
    rows = [array.tobytes() for array in (ours, theirs)]
    flat = next(
        place
        for place in range(ours.size)
        if rows[0][place * size :][:size] != rows[1][place * size :][:size]
    )
    place = np.unravel_index(flat, ours.shape)
    index = ", ".join(str(int(number)) for number in place)
    return f"{path}[{index}] is {_both(ours[place], theirs[place])}"


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two things of an env's own making are; they may not want to say."""
    with suppress(Exception):
        if one == other:
            return True
    with suppress(Exception):
        return pickle.dumps(one) == pickle.dumps(other)
    return False


def _both(one: Any, other: Any) -> str:
    """Two numbers, with as many digits as it takes to tell them apart."""
    if isinstance(one, (float, np.floating)):
        short = [f"{float(value):.4g}" for value in (one, other)]
        if short[0] != short[1]:
            return " and ".join(short)
    return f"{_shown(one)} and {_shown(other)}"


def _shown(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return f"{value!r:.60}"
    except Exception:  # its own __repr__ failed
        return type(value).__name__
