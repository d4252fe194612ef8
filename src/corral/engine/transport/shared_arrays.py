"""Read-only arrays, one copy in memory for all workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.layout.fields import Field, Planner
from corral.engine.transport.block import Block
from corral.errors import OptionError


@dataclass(slots=True)
class SharedArrays:
    """Where the arrays lie; travels to the workers, which open it."""

    descriptor: int
    size: int
    fields: tuple[Field, ...]

    def open(self) -> dict[str, NDArray[Any]]:
        """Map the arrays, in a worker; the mapping itself is read-only."""
        return self.views(
            Block.attach(os.dup(self.descriptor), self.size, writable=False)
        )

    def views(self, block: Block) -> dict[str, NDArray[Any]]:
        """The arrays in a mapping of the block."""
        return {field.name: field.view(block.memory) for field in self.fields}


def share(arrays: dict[str, NDArray[Any]]) -> tuple[Block, SharedArrays]:
    """Copy the arrays into a block of their own, once."""
    planner = Planner()
    values = shareable(arrays)
    fields = tuple(planner.add(n, v.dtype, v.shape) for n, v in values.items())
    block = Block.create(planner.size, shared=True)
    for field in fields:
        field.view(block.memory)[...] = values[field.name]
    block.seal(read_only=True)
    assert block.descriptor is not None
    return block, SharedArrays(block.descriptor, block.size, fields)


def shareable(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The values as arrays; refuses those of Python objects."""
    values = {name: as_array(name, array) for name, array in arrays.items()}
    objects = [name for name, value in values.items() if value.dtype.hasobject]
    if objects:
        raise OptionError(
            f"shared{objects} holds Python objects, which cannot be shared; use "
            "per_worker to build them in each worker"
        )
    return values


def as_array(name: str, value: Any) -> NDArray[Any]:
    """The value as an array; raises OptionError if it is none."""
    try:
        return np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise OptionError(
            f"what is to be shared as {name!r} is no array ({error}); pass an array, "
            "such as tensor.detach().cpu().numpy()"
        ) from error
