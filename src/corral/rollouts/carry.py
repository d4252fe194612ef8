"""Carries: the recurrent state of a policy, one row per slot, in any nested structure.

Leaves are numpy arrays, or tensors that can be indexed, cloned and assigned to. Corral
never writes to a carry that a policy returned, since it may be the policy's own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.engine.tree import mapped
from corral.errors import OptionError


def copied(carry: Any) -> Any:
    """Return a copy."""
    # A tensor has no copy(). The clone of a tensor that was made in inference mode can
    # be written to; the tensor itself cannot.
    return mapped(
        lambda leaf: leaf.clone() if hasattr(leaf, "clone") else leaf.copy(), carry
    )


def rows_of(carry: Any, rows: Sequence[int]) -> Any:
    """Return a copy of some rows."""
    return mapped(lambda leaf: leaf[rows], carry)


def write_rows(carry: Any, rows: Sequence[int], values: Any) -> None:
    """Set these rows, in place."""

    def write(leaf: Any, new: Any) -> None:
        leaf[rows] = new

    mapped(write, carry, values)


def joined(carries: Sequence[Any]) -> Any:
    """Concatenate the rows of several carries; None if there are none."""
    return mapped(lambda *leaves: _join(leaves), carries[0], *carries[1:])


def check_rows(carry: Any, rows: int) -> None:
    """Check that every leaf has as many rows as the step."""

    def check(leaf: Any) -> None:
        shape = tuple(getattr(leaf, "shape", ()))
        if shape[:1] != (rows,):
            raise OptionError(
                f"the policy's carry has a leaf of shape {shape}; expected "
                f"({rows}, ...): one row for each row of the step"
            )

    mapped(check, carry)


def _join(leaves: Sequence[Any]) -> Any:
    if isinstance(leaves[0], np.ndarray):
        return np.concatenate(leaves)
    return sys.modules["torch"].cat(leaves)  # this room does not import torch
