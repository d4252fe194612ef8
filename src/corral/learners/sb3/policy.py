"""A model of Stable-Baselines3 as a policy, for evaluations."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.core import Decision, Generators, Step
from corral.engine.tree import mapped
from corral.learners.protocol import PolicyVariants
from corral.learners.sb3.normalisation import SB3Scales
from corral.learners.torch_import import torch

FORWARD_ROWS = 16
"""Rows of every forward pass: a row must not depend on how many there are."""


@dataclass(frozen=True, slots=True)
class Predictor:
    """A policy of Stable-Baselines3, and how it scales observations."""

    policy: Any
    scales: SB3Scales

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """Return actions for a batch of unscaled observations."""
        return self.policy.predict(self.scales(obs), deterministic=deterministic)[0]

    def frozen(self) -> Predictor:
        """Return a copy that later updates do not change."""
        # A distribution holds on to the last graph, which cannot be copied.
        known = {
            id(self.policy.action_dist): copy.copy(self.policy.action_dist),
            id(self.policy.optimizer): None,
        }
        return Predictor(copy.deepcopy(self.policy, known), self.scales.frozen())


class SB3Policy(PolicyVariants):
    """Asks the predictor, in passes of a fixed size.

    Args:
        predictor: predicts, with its weights and scales at that time.
        chunk: rows of a pass.
    """

    def __init__(self, predictor: Predictor, chunk: int = FORWARD_ROWS) -> None:
        self._predictor = predictor
        self._chunk = chunk

    def frozen(self) -> SB3Policy:
        """Return a deterministic copy that later updates do not change."""
        return SB3Policy(self._predictor.frozen()).deterministic()

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Choose an action for each row of a step."""
        if not self.greedy:
            return Decision(self._drawn(step.obs, rng))
        rows, chunk = len(step), self._chunk
        parts = []
        for first in range(0, rows, chunk):
            # The last row again where there are fewer.
            places = np.minimum(np.arange(first, first + chunk), rows - 1)
            parts.append(self._predictor.predict(_some(step.obs, places)))
        return Decision(np.concatenate(parts)[:rows])

    def initial_carry(self, rows: int) -> None:
        """It remembers nothing."""

    def _drawn(self, obs: Any, rng: Generators) -> Any:
        """Row by row, each from a seed of its own episode."""
        drawn = []
        with torch.random.fork_rng():
            for row in range(len(rng)):
                torch.manual_seed(int(rng[row].integers(2**62)))
                drawn.append(self._predictor.predict(_some(obs, [row]), False))
        return np.concatenate(drawn)


def _some(obs: Any, rows: Any) -> Any:
    return mapped(lambda part: part[rows], obs)
