"""Metrics of one update, from its minibatches."""

from __future__ import annotations

import math
from typing import Any

from corral.learners.torch_import import torch


class UpdateMetrics:
    """Keeps the minibatches' tensors; means are computed when all are done."""

    def __init__(self) -> None:
        self.stopped = False
        """Whether target_kl ended the update."""
        self._epochs = 0
        self._last_epoch = 0
        self._losses: list[tuple[Any, ...]] = []
        self._log_ratios: list[Any] = []
        self._norms: list[float] = []

    def begin_epoch(self) -> None:
        """Begin another pass over the rows."""
        self._epochs += 1
        self._last_epoch = len(self._log_ratios)

    def add_minibatch(
        self, log_ratio: Any, policy_loss: Any, value_loss: Any, outputs: Any
    ) -> None:
        """Add the losses and outputs of a minibatch."""
        self._log_ratios.append(log_ratio)
        self._losses.append((policy_loss, value_loss, outputs))

    def add_step(self, norm: float) -> None:
        """Add the gradient norm of a step."""
        self._norms.append(norm)

    def metrics(self, clip: float, head: Any) -> dict[str, float]:
        """Return means over all minibatches; `kl` over the last epoch only."""
        if not self._losses:
            return {"minibatches": 0.0}
        parts = (torch.cat(one) for one in zip(*self._losses, strict=True))
        policy_loss, value_loss, outputs = parts
        moved = torch.cat(self._log_ratios).expm1().abs() > clip
        norms = self._norms
        return {
            "policy_loss": float(policy_loss.mean()),
            "value_loss": float(value_loss.mean()),
            "entropy": float(head.entropy(outputs).detach().mean()),
            "kl": kl(torch.cat(self._log_ratios[self._last_epoch :])),
            "clip_fraction": float(moved.float().mean()),
            "gradient_norm": sum(norms) / len(norms) if norms else math.nan,
            "epochs": float(self._epochs),
            "minibatches": float(len(norms)),
            "stopped_early": float(self.stopped),
        }


def kl(log_ratio: Any) -> float:
    """Estimate the KL divergence; never negative."""
    return float((log_ratio.expm1() - log_ratio).mean())
