"""A model of Stable-Baselines3 as a policy, for evaluations."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from corral.core import Decision, Generators, Step
from corral.engine.tree import mapped
from corral.learners.torch_import import torch

FORWARD_ROWS = 16
"""Rows of every forward pass: a row must not depend on how many there are."""


class TrainedActor(Protocol):
    """What predicts: `SB3PPO`, or a frozen copy of its policy."""

    def predict(self, obs: Any, deterministic: bool = True) -> Any: ...

    def frozen(self) -> TrainedActor: ...


class SB3Policy:
    """Asks the learner, in passes of a fixed size.

    Args:
        learner: predicts, with its weights and scales at that time.
        deterministic: take the most likely action instead of drawing one.
        chunk: rows of a pass.
    """

    def __init__(
        self,
        learner: TrainedActor,
        deterministic: bool = False,
        chunk: int = FORWARD_ROWS,
    ) -> None:
        self._learner = learner
        self._deterministic = deterministic
        self._chunk = chunk

    def deterministic(self) -> SB3Policy:
        """Return a policy that takes the most likely actions."""
        return SB3Policy(self._learner, deterministic=True)

    def stochastic(self) -> SB3Policy:
        """Return a policy that draws its actions."""
        return SB3Policy(self._learner, deterministic=False)

    def frozen(self) -> SB3Policy:
        """Return a deterministic copy that later updates do not change."""
        return SB3Policy(self._learner.frozen(), deterministic=True)

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Choose an action for each row of a step."""
        if not self._deterministic:
            return Decision(self._drawn(step.obs, rng))
        rows = len(step)
        parts = [
            self._learner.predict(_some(step.obs, self._filled(first, rows)))
            for first in range(0, rows, self._chunk)
        ]
        return Decision(np.concatenate(parts)[:rows])

    def initial_carry(self, rows: int) -> None:
        """It remembers nothing."""

    def _filled(self, first: int, rows: int) -> Any:
        """So many rows from the first on; the last one again where there are fewer."""
        return np.minimum(np.arange(first, first + self._chunk), rows - 1)

    def _drawn(self, obs: Any, rng: Generators) -> Any:
        """Row by row, each from a seed of its own episode."""
        drawn = []
        with torch.random.fork_rng():
            for row in range(len(rng)):
                torch.manual_seed(int(rng[row].integers(2**62)))
                drawn.append(self._learner.predict(_some(obs, [row]), False))
        return np.concatenate(drawn)


def _some(obs: Any, rows: Any) -> Any:
    return mapped(lambda part: part[rows], obs)
