"""A sampled batch as tensors: sequences; a single transition is one of length 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from corral.learners.off_policy.nets import History
from corral.learners.tensors import Device
from corral.learners.torch_import import torch

# The steps at which transitions begin, and those at which they end.
NOW, LATER = slice(None, -1), slice(1, None)


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences of T transitions, `(T, rows, n)`, with T + 1 observations.

    Attributes:
        history: `(T + 1, rows, n)`: what a net with a memory reads at each step.
        mask: 1 for transitions that were sampled, 0 for padding; None for no padding.
    """

    history: History
    action: Any
    reward: Any
    terminated: Any
    mask: Any

    def mean(self, losses: Any) -> Any:
        """Return the mean over sampled transitions of `(T, rows, 1)`."""
        if self.mask is None:
            return losses.mean()
        return (losses * self.mask).sum() / self.mask.sum()


def batch_of(sampled: Mapping[str, Any], device: Device) -> Batch:
    """Return what a replay has sampled; single rows are sequences of one."""
    tensors = {
        name: torch.from_numpy(one if one.ndim == 3 else one[None]).to(device)
        for name, one in sampled.items()
    }
    action, reward, mask = tensors["action"], tensors["reward"], tensors.get("mask")
    obs = torch.cat([tensors["obs"][:1], tensors["next_obs"]])
    if mask is None:
        history = History(None, None, obs)
    else:
        # Nothing has happened before the first step, even in the middle of an episode.
        history = History(_after_zero(action), _after_zero(reward), obs)
    return Batch(history, action, reward, tensors["terminated"], mask)


def _after_zero(steps: Any) -> Any:
    return torch.cat([torch.zeros_like(steps[:1]), steps])
