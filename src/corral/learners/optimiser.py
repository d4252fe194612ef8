"""Adam over all weights of a net as one vector.

Small nets spend their time on the number of tensors, not on what is in them: as views
of one vector, all weights are cleared, measured, clipped and moved in one call each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corral.learners.nets.memory import Memory
from corral.learners.torch_import import adam, torch

EPSILON = 1e-5
# Of torch's `adam`.
CONSTANTS: dict[str, Any] = {
    "beta1": 0.9,
    "beta2": 0.999,
    "amsgrad": False,
    "maximize": False,
    "fused": True,
}


def as_vector(net: Any, weights: Sequence[Any]) -> Any:
    """Return one vector of a net's weights, which are views of it from now on."""
    vector = torch.cat([weight.detach().reshape(-1) for weight in weights])
    parts = vector.split([weight.numel() for weight in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.data = part.view_as(weight)
    for part in net.modules():
        if isinstance(part, Memory):
            part.in_own_storage()
    return vector


class Optimiser:
    """Moves the weights of a net; from now on they are views of one vector."""

    def __init__(
        self, net: Any, epsilon: float = EPSILON, weight_decay: float = 0.0
    ) -> None:
        self._weights = [one for one in net.parameters() if one.requires_grad]
        self.vector = as_vector(net, self._weights)
        self._gradient = torch.zeros_like(self.vector)
        parts = self._gradient.split([weight.numel() for weight in self._weights])
        for weight, part in zip(self._weights, parts, strict=True):
            weight.grad = part.view_as(weight)
        self._constants = {**CONSTANTS, "eps": epsilon, "weight_decay": weight_decay}
        device = self.vector.device
        # As torch's own Adam names them.
        self._state = {
            "step": torch.zeros((), dtype=torch.float32, device=device),
            "exp_avg": torch.zeros_like(self.vector),
            "exp_avg_sq": torch.zeros_like(self.vector),
        }

    def minimise(self, loss: Any, lr: float, max_norm: float | None = None) -> float:
        """Move these weights alone against the gradient of a loss; return its norm."""
        self._gradient.zero_()
        loss.backward(inputs=self._weights)
        norm = 0.0
        if max_norm is not None:
            norm = float(torch.linalg.vector_norm(self._gradient))
        self.step(lr, norm, max_norm)
        return norm

    def descend(self, gradient: Any, lr: float) -> None:
        """Move against a gradient that is known."""
        self._gradient.copy_(gradient)
        self.step(lr)

    def backward(self, slopes: Sequence[tuple[Any, Any]]) -> float:
        """Compute the gradient; returns its norm.

        Args:
            slopes: tensors, and how the loss changes with each.
        """
        self._gradient.zero_()
        tensors, changes = zip(*slopes, strict=True)
        torch.autograd.backward(tensors, changes)
        return float(torch.linalg.vector_norm(self._gradient))

    def step(self, lr: float, norm: float = 0.0, max_norm: float | None = None) -> None:
        """Move against the gradient, whose norm is cut to `max_norm`."""
        if max_norm is not None and norm > max_norm:
            self._gradient.mul_(max_norm / (norm + 1e-6))
        count, mean, square = ([one] for one in self._state.values())
        arrays = ([self.vector], [self._gradient], mean, square)
        # `torch.optim.Adam` takes as long for itself as for the weights of a small net.
        adam(*arrays, [], count, lr=lr, **self._constants)

    def state_dict(self) -> dict[str, Any]:
        """What it remembers of gradients, in memory of its own."""
        return {name: value.clone() for name, value in self._state.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was saved; nothing, before the first step."""
        for name, value in self._state.items():
            value.copy_(state.get(name, torch.zeros(())))
