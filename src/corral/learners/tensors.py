"""Arrays as tensors and back, without a copy where torch can do without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.tree import mapped
from corral.learners.torch_import import torch

# What torch takes as one.
Device = Any
# Rows of a pass that must not depend on their batch.
PASS_ROWS = 16
# Random rows that are tried in every place of a pass.
PROBED_ROWS = 4


def to_tensor(array: NDArray[Any], device: Device) -> Any:
    """The array on a device; on the CPU it may share its memory."""
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)  # torch cannot compute with wide unsigned ones
    if not array.flags.writeable or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="), copy=True)
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.to(device)


def to_array(tensor: Any) -> NDArray[Any]:
    """A tensor as an array, which shares its memory on the CPU."""
    array: NDArray[Any] = tensor.cpu().numpy()
    return array


def weights_of(module: Any) -> dict[str, NDArray[Any]]:
    """The parameters and buffers of a module; on the CPU they share its memory."""
    return {name: to_array(one) for name, one in module.state_dict().items()}


def load_weights(module: Any, weights: Mapping[str, NDArray[Any]]) -> None:
    """Set the parameters and buffers of a module, in place."""
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            tensor.copy_(torch.from_numpy(weights[name]))


def one_axis(array: NDArray[Any]) -> NDArray[Any]:
    """`[rows, slots, ...]` as (rows × slots, ...)."""
    return array.reshape(-1, *array.shape[2:])


class ExactPasses:
    """Computes rows so that none depends on its batch, to the last bit.

    Passes have a fixed size: the last one is filled up with the last row, which is
    valid for every space. Narrow layers add up in another order in the last rows of a
    pass (27 inputs, 8 outputs); the first call finds that out, and every row of such a
    net is a pass of its own.

    Args:
        size: rows of a pass, if it is known.
    """

    def __init__(self, size: int = 0) -> None:
        self._size = size

    def __call__(self, forward: Callable[[Any], Any], inputs: Any, rows: int) -> Any:
        """What `forward` makes of the inputs, which have so many rows."""
        if not self._size:
            alike = _alike_in_every_place(forward, inputs)
            self._size = PASS_ROWS if alike else 1
        parts = []
        for begin in range(0, rows, self._size):
            index = np.minimum(np.arange(begin, begin + self._size), rows - 1)
            parts.append(forward(mapped(lambda leaf, at=index: leaf[at], inputs)))
        return mapped(lambda *each: np.concatenate(each)[:rows], *parts)


def _alike_in_every_place(forward: Callable[[Any], Any], inputs: Any) -> bool:
    """Whether equal rows of a pass come out equal, for some random rows."""
    rng = np.random.default_rng(0)

    def repeated(leaf: NDArray[Any]) -> NDArray[Any]:
        row = leaf[:1]
        if leaf.dtype.kind == "f":
            row = rng.standard_normal(row.shape).astype(leaf.dtype)
        return np.repeat(row, PASS_ROWS, axis=0)

    found: list[bool] = []
    for _ in range(PROBED_ROWS):
        outputs = forward(mapped(repeated, inputs))
        mapped(lambda leaf: found.append(bool((leaf == leaf[:1]).all())), outputs)
    return all(found)
