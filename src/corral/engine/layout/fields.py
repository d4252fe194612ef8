"""Fields are the named arrays of a block: a planner places them, a view reads them.

    planner = Planner()
    reward = planner.add("reward", np.float64, (2, slots))
    ...
    memory = bytearray(planner.size)
    reward.view(memory)[row, slot] = 1.0

A field is plain arithmetic, so it can be pickled and viewed in another process that
maps the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from mmap import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

# Bytes in a cache line. Two fields never share one: no false sharing of writers.
ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Field:
    """One array at its place in the block."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes the array takes, without the gap that follows it."""
        return math.prod(self.shape) * self.dtype.itemsize

    def view(self, memory: bytearray | memoryview | mmap) -> npt.NDArray[Any]:
        """The array itself, sharing `memory`; read-only where the memory is."""
        dtype = self.dtype
        if dtype.names is None:
            # Numpy's own object, which a pickled dtype is not: `is` has to work on it.
            dtype = np.dtype(dtype.str)
        # By way of `frombuffer`, which holds the buffer: `ndarray` alone keeps the mmap
        # but lets it be unmapped, and reading the view would then crash.
        whole = np.frombuffer(memory, np.uint8)
        return np.ndarray(self.shape, dtype, buffer=whole, offset=self.offset)


class Planner:
    """Places one field after another from `start` on, each on a new cache line."""

    def __init__(self, start: int = 0) -> None:
        self.fields: dict[str, Field] = {}
        # Bytes of block needed so far, counted from offset 0: whole cache lines.
        self.size = aligned(start)

    def add(self, name: str, dtype: npt.DTypeLike, shape: Iterable[int]) -> Field:
        """Place one more field."""
        dtype = np.dtype(dtype)
        assert name not in self.fields, f"field {name!r} is planned twice"
        assert not dtype.hasobject, f"field {name!r}: objects cannot live in a block"
        field = Field(name, dtype, tuple(int(length) for length in shape), self.size)
        self.fields[name] = field
        self.size = aligned(field.offset + field.nbytes)
        return field


def aligned(offset: int, to: int = ALIGNMENT) -> int:
    """The first multiple at or after `offset`: the start of a cache line."""
    return -(-offset // to) * to
