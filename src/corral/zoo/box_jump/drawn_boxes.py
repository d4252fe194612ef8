"""How many boxes play; workers import this, so it imports no learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class DrawnBoxes:
    """A pool's `sample_task`: how many boxes play an episode, one of `choices`."""

    choices: tuple[int, ...]

    def __call__(self, slot: int, episode: int, rng: np.random.Generator) -> int:
        """Draw a number of boxes."""
        return self.choices[rng.integers(len(self.choices))]
