"""Adam over all weights of a net as one vector.

Small nets spend their time on the number of tensors, not on what is in them: as views
of one vector, all weights are cleared, measured, clipped and moved in one call each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from corral.learners.torch_import import nn, torch

EPSILON = 1e-5


def as_vector(weights: Sequence[Any]) -> Any:
    """Return one vector of all weights, which are views of it from now on."""
    vector = torch.cat([weight.detach().reshape(-1) for weight in weights])
    parts = vector.split([weight.numel() for weight in weights])
    for weight, part in zip(weights, parts, strict=True):
        weight.data = part.view_as(weight)
    return vector


class Optimiser:
    """Moves the weights of a net; from now on they are views of one vector."""

    def __init__(
        self, net: Any, epsilon: float = EPSILON, weight_decay: float = 0.0
    ) -> None:
        self._weights = [one for one in net.parameters() if one.requires_grad]
        self.vector = nn.Parameter(as_vector(self._weights))
        self._gradient = torch.zeros_like(self.vector)
        parts = self._gradient.split([weight.numel() for weight in self._weights])
        for weight, part in zip(self._weights, parts, strict=True):
            weight.grad = part.view_as(weight)
        self.vector.grad = self._gradient
        self._adam = torch.optim.Adam(
            [self.vector], eps=epsilon, weight_decay=weight_decay, fused=True
        )

    def minimise(self, loss: Any, lr: float, max_norm: float | None = None) -> float:
        """Move these weights alone against the gradient of a loss; return its norm."""
        self._gradient.zero_()
        loss.backward(inputs=self._weights)
        norm = 0.0
        if max_norm is not None:
            norm = float(torch.linalg.vector_norm(self._gradient))
        self.step(lr, norm, max_norm)
        return norm

    def backward(self, slopes: Sequence[tuple[Any, Any]]) -> float:
        """Compute the gradient; returns its norm.

        Args:
            slopes: tensors, and how the loss changes with each.
        """
        self._gradient.zero_()
        tensors, changes = zip(*slopes, strict=True)
        torch.autograd.backward(tensors, changes)
        return float(torch.linalg.vector_norm(self._gradient))

    def step(self, lr: float, norm: float, max_norm: float | None) -> None:
        """Move against the gradient, whose norm is cut to `max_norm`."""
        if max_norm is not None and norm > max_norm:
            self._gradient.mul_(max_norm / (norm + 1e-6))
        self._adam.param_groups[0]["lr"] = lr
        self._adam.step()

    def state_dict(self) -> dict[str, Any]:
        """What it remembers of gradients, in memory of its own."""
        state = self._adam.state_dict()["state"].get(0, {})
        return {name: value.clone() for name, value in state.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was saved."""
        whole = self._adam.state_dict()
        copied = {name: value.clone() for name, value in state.items()}
        whole["state"] = {0: copied} if copied else {}
        self._adam.load_state_dict(whole)
