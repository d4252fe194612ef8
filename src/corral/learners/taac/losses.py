"""The losses of TAAC: means over agents that are there."""

from __future__ import annotations

from typing import Any

from corral.learners.torch_import import functional, torch


def mean_over(values: Any, valid: Any) -> Any:
    """The mean of the values at the True places of `valid`; 0 without one."""
    return (values * valid).sum() / valid.sum().clamp(min=1)


def clipped_gain(log_ratio: Any, advantage: Any, clip: float) -> Any:
    """PPO's clipped objective of each sample, negated."""
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    return -torch.min(ratio * advantage, clipped * advantage)


def conformity(attended: Any, present: Any, cap: float) -> Any:
    """How alike agents attend: the mean cosine similarity of pairs, cut off at `cap`.

    Of each row first: the mean over its pairs of present agents, not less than `cap`;
    then the mean over the rows that have such pairs.

    Args:
        attended: `(rows, agents, width)`.
        present: `(rows, agents)`.
        cap: similarity below which there is nothing to push.
    """
    unit = functional.normalize(attended, dim=-1)
    alike = unit @ unit.transpose(1, 2)
    both = present[:, :, None] & present[:, None, :]
    both = both & ~torch.eye(present.shape[1], dtype=torch.bool, device=both.device)
    pairs = both.sum((1, 2))
    by_row = (alike * both).sum((1, 2)) / pairs.clamp(min=1)
    return mean_over(by_row.clamp(min=cap), pairs > 0)
