"""Dense layers, initialised orthogonally from a generator of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

from corral.learners.torch_import import functional, nn, torch

Activation = Literal["tanh", "relu", "elu", "silu"]

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": functional.elu,
    "silu": functional.silu,
}
HIDDEN_GAIN = math.sqrt(2.0)


def orthogonal(layer: Any, gain: float, generator: Any) -> Any:
    """The layer, with orthogonal weights and no bias."""
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def dense(inputs: int, outputs: int, gain: float, generator: Any) -> Any:
    """One dense layer."""
    # skip_init: the constructor would draw from torch's global generator.
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    return orthogonal(layer, gain, generator)


class Mlp(nn.Module):  # type: ignore[misc]
    """Dense layers with an activation after each; none at all is the identity."""

    def __init__(
        self, inputs: int, widths: Sequence[int], activation: Activation, generator: Any
    ) -> None:
        super().__init__()
        sizes = [inputs, *widths]
        self.layers = nn.ModuleList(
            dense(one, other, HIDDEN_GAIN, generator) for one, other in pairwise(sizes)
        )
        self.width = sizes[-1]
        self.activation = activation
        self._activation = ACTIVATIONS[activation]
        # Calling modules takes half the time of a forward pass of eight rows.
        self._weights = [(layer.weight, layer.bias) for layer in self.layers]

    def forward(self, x: Any) -> Any:
        """(rows, inputs) -> (rows, width)."""
        for weight, bias in self._weights:
            x = self._activation(functional.linear(x, weight, bias))
        return x
