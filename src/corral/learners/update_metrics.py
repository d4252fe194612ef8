"""Metrics of one update, from its minibatches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corral.learners.minibatches import RolloutTensors
from corral.learners.torch_import import torch


class JudgedBatch(NamedTuple):
    """What a minibatch computed, row by row."""

    log_ratio: Any
    policy_loss: Any
    value_loss: Any
    outputs: Any


def update_metrics(
    epochs: Sequence[Sequence[JudgedBatch]],
    norms: Sequence[float],
    clip: float,
    head: Any,
) -> dict[str, float]:
    """Return means over all minibatches; `kl` over the last epoch only.

    Args:
        epochs: the minibatches of each epoch.
        norms: gradient norms, one per step: the last minibatch has none if target_kl
            ended the update.
        clip: the clip range.
        head: of the policy.
    """
    batches = [batch for epoch in epochs for batch in epoch]
    if not batches:
        return {"minibatches": 0.0}
    whole = JudgedBatch(*(torch.cat(one) for one in zip(*batches, strict=True)))
    moved = whole.log_ratio.expm1().abs() > clip
    return {
        "policy_loss": float(whole.policy_loss.mean()),
        "value_loss": float(whole.value_loss.mean()),
        "entropy": float(head.entropy(whole.outputs).detach().mean()),
        "kl": kl(torch.cat([batch.log_ratio for batch in epochs[-1]])),
        "clip_fraction": float(moved.float().mean()),
        "gradient_norm": sum(norms) / len(norms) if norms else math.nan,
        "epochs": float(len(epochs)),
        "minibatches": float(len(norms)),
        "stopped_early": float(len(norms) < len(batches)),
    }


def kl(log_ratio: Any) -> float:
    """Estimate the KL divergence; never negative."""
    return float((log_ratio.expm1() - log_ratio).mean())


def explained_variance(rows: RolloutTensors, valid: NDArray[np.bool_]) -> float:
    """Share of the returns' variance that the critic explains; 1 is perfect."""
    places = torch.from_numpy(np.flatnonzero(valid)).to(rows.value.device)
    returns, expected = rows.returns[places], rows.value[places]
    if len(places) < 2 or float(spread := returns.var()) == 0.0:
        return math.nan
    return 1.0 - float((returns - expected).var() / spread)
