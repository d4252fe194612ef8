"""Arrays as tensors and back, without a copy where torch can do without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError
from corral.learners.torch_import import torch

# What torch takes as one.
Device = Any


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


def load_weights(
    module: Any, weights: Mapping[str, NDArray[Any]], besides: Iterable[str] = ()
) -> None:
    """Set the parameters and buffers of a module, in place.

    Args:
        module: the net.
        weights: by name.
        besides: names of what is not the module's.

    Raises:
        OptionError: they are those of another net; nothing was set.
    """
    own = module.state_dict()
    for name, tensor in own.items():
        # torch would fill a larger tensor with copies of a smaller one.
        shape, expected = getattr(weights.get(name), "shape", None), tuple(tensor.shape)
        if shape != expected:
            found = "is missing" if shape is None else f"has shape {shape}"
            raise _other_net(f"weight {name!r} {found}; expected {expected}")
    more = sorted(weights.keys() - own.keys() - set(besides))
    if more:
        raise _other_net(f"the net has no weight {more[0]!r}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(torch.from_numpy(weights[name]))


def _other_net(what: str) -> OptionError:
    return OptionError(
        f"{what}. The weights are those of another net: make both policies, or the "
        "policy and its policy_factory, with the same spaces and settings"
    )


def one_axis(array: NDArray[Any]) -> NDArray[Any]:
    """`[rows, slots, ...]` as (rows × slots, ...)."""
    return array.reshape(-1, *array.shape[2:])
