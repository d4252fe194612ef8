"""Carries: what a policy remembers, one row per slot, in whatever structure it likes.

Leaves are numpy arrays, or tensors that can be indexed, cloned and assigned to; a carry
that a policy gave away is never written to, since it may be the policy's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from corral.errors import OptionError


def mapped(function: Callable[..., Any], carry: Any, *others: Any) -> Any:
    """The function of every leaf, in the same structure; None stays None."""
    if carry is None:
        return None
    if isinstance(carry, dict):
        return {
            key: mapped(function, part, *(other[key] for other in others))
            for key, part in carry.items()
        }
    if isinstance(carry, (tuple, list)):
        parts = [
            mapped(function, part, *(other[place] for other in others))
            for place, part in enumerate(carry)
        ]
        if hasattr(carry, "_fields"):  # a named tuple takes its parts one by one
            return type(carry)(*parts)
        return type(carry)(parts)
    return function(carry, *others)


def copied(carry: Any) -> Any:
    """The same in memory of its own."""
    return mapped(_copy, carry)


def rows_of(carry: Any, rows: Sequence[int]) -> Any:
    """A copy of some rows."""
    return mapped(lambda leaf: leaf[rows], carry)


def write_rows(carry: Any, rows: Sequence[int], values: Any) -> None:
    """Give these rows other values, in place."""

    def write(leaf: Any, new: Any) -> None:
        leaf[rows] = new

    mapped(write, carry, values)


def joined(carries: Sequence[Any]) -> Any:
    """The rows of several carries, one after the other."""
    return mapped(lambda *leaves: _join(leaves), carries[0], *carries[1:])


def check_rows(carry: Any, rows: int) -> None:
    """Every leaf must have one row for each of the step's."""

    def check(leaf: Any) -> None:
        shape = tuple(getattr(leaf, "shape", ()))
        if shape[:1] != (rows,):
            raise OptionError(
                f"the policy's carry has a leaf of shape {shape}; expected "
                f"({rows}, ...): one row for each row of the step"
            )

    mapped(check, carry)


def _copy(leaf: Any) -> Any:
    # A tensor has no copy(); and the clone of one made in torch's inference mode can be
    # written to, which the tensor itself cannot.
    return leaf.clone() if hasattr(leaf, "clone") else leaf.copy()


def _join(leaves: Sequence[Any]) -> Any:
    first = leaves[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(leaves)
    # A tensor, and torch is not ours to import.
    whole = first.new_zeros((sum(map(len, leaves)), *first.shape[1:]))
    begin = 0
    for leaf in leaves:
        whole[begin : begin + len(leaf)] = leaf
        begin += len(leaf)
    return whole
