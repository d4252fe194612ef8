"""Carries: what a policy remembers, one row per slot, in whatever structure it likes.

Leaves are numpy arrays, or tensors that can be indexed, cloned and assigned to; a carry
that a policy gave away is never written to, since it may be the policy's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.engine.tree import mapped
from corral.errors import OptionError


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
