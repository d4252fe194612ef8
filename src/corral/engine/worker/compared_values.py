"""What envs returned: kept for later, and compared to the last bit.

A trial of envs in one process compares what it kept of their results; the doctor and
`corral.testing` compare the results themselves.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

# Items of a list or array that are kept one by one; of a longer one, a digest.
MAX_LISTED = 64
_NUMBERS = (np.ndarray, np.generic, int, float)


class Digest(bytes):
    """Stands for a value that is too long to be kept, or is of an env's own class."""


class Apart(NamedTuple):
    """A place where two values differ: `obs[3]`, "is", and both; or it "differs"."""

    place: str
    what: str
    one: str
    other: str


def kept(value: Any) -> Any:
    """As much of a value as is compared later; no later step changes it."""
    if isinstance(value, dict):
        # Keys of the env's own classes would be others in another process.
        return {
            key if isinstance(key, (int, str)) else repr(key): kept(part)
            for key, part in value.items()
        }
    if isinstance(value, (list, tuple)) and len(value) <= MAX_LISTED:
        return [kept(part) for part in value]
    is_array = isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject
    if is_array and value.size <= MAX_LISTED:
        return np.array(value)
    if value is None or (isinstance(value, (int, float, str)) and not is_array):
        return value
    try:
        kind = (value.shape, value.dtype.str) if is_array else ()
        data = value.tobytes() if is_array else pickle.dumps(value)
    except Exception:
        return type(value).__qualname__  # as much of it as can be compared
    return Digest(hashlib.blake2b(repr(kind).encode() + data, digest_size=12).digest())


def difference(path: str, one: Any, other: Any) -> str:
    """The first place where two values differ, in words; "" if there is none."""
    for place, what, ours, theirs in differing(path, one, other):
        return f"{place} {what} {ours} and {theirs}"
    return ""


def differing(path: str, one: Any, other: Any) -> Iterator[Apart]:
    """Every place where two values do not have the same bits."""
    parts: list[tuple[str, Any, Any]] = []
    if isinstance(one, dict) and isinstance(other, dict):
        if one.keys() != other.keys():
            yield Apart(path, "has keys", _shown(list(one)), _shown(list(other)))
        both = [key for key in one if key in other]
        parts = [(f"{path}[{key!r}]", one[key], other[key]) for key in both]
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        if len(one) != len(other):
            yield Apart(path, "has length", str(len(one)), str(len(other)))
        pairs = zip(one, other, strict=False)
        parts = [(f"{path}[{place}]", *pair) for place, pair in enumerate(pairs)]
    elif _is_numeric(one) and _is_numeric(other):
        yield from _differing_numbers(path, np.asarray(one), np.asarray(other))
    elif not _is_equal(one, other):
        is_digest = isinstance(one, Digest) or isinstance(other, Digest)
        shown = ("differs", "", "") if is_digest else ("is", _shown(one), _shown(other))
        yield Apart(path, *shown)
    for part in parts:
        yield from differing(*part)


def _is_numeric(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not np.asarray(value).dtype.hasobject


def _differing_numbers(path: str, one: Any, other: Any) -> Iterator[Apart]:
    if one.shape != other.shape or one.dtype != other.dtype:
        kinds = (f"{array.dtype} {array.shape}" for array in (one, other))
        yield Apart(path, "is", *kinds)
    elif one.tobytes() != other.tobytes():
        for place in np.ndindex(one.shape):
            if one[place].tobytes() == other[place].tobytes():
                continue
            index = f"[{', '.join(map(str, place))}]" if place else ""
            values = [array[place].item() for array in (one, other)]
            # As many digits as it takes to tell them apart.
            shown = [f"{v:.4g}" if isinstance(v, float) else repr(v) for v in values]
            if shown[0] == shown[1]:
                shown = list(map(repr, values))
            yield Apart(path + index, "is", *shown)


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
