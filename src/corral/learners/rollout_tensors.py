"""What is learnt from: the rows of a rollout as tensors, and some of them at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.learners.torch_import import torch


@dataclass(frozen=True, slots=True)
class RolloutTensors:
    """Tensors of (rows, ...)."""

    leaves: list[Any]
    """Of the observations."""
    chosen: Any
    log_prob: Any
    """Of what was chosen, when it was."""
    value: Any
    """What was expected, then."""
    advantage: Any
    returns: Any

    def at(self, index: NDArray[np.intp]) -> RolloutTensors:
        """Some of them, copied."""
        places = torch.from_numpy(index).to(self.value.device)
        return self._mapped(lambda tensor: tensor.index_select(0, places))

    def part(self, part: slice) -> RolloutTensors:
        """Consecutive ones, as views."""
        return self._mapped(lambda tensor: tensor[part])

    def _mapped(self, function: Callable[[Any], Any]) -> RolloutTensors:
        return RolloutTensors(
            [function(leaf) for leaf in self.leaves],
            function(self.chosen),
            function(self.log_prob),
            function(self.value),
            function(self.advantage),
            function(self.returns),
        )

    def quantities(self) -> list[tuple[str, Any]]:
        """With names that tell a user what they are, causes first."""
        return [
            *(("an observation", leaf) for leaf in self.leaves),
            ("an action", self.chosen),
            ("the log-probability of an action that was taken", self.log_prob),
            ("the value of an observation, as collected,", self.value),
            ("an advantage, made of rewards and values,", self.advantage),
            ("a return", self.returns),
        ]


@dataclass(frozen=True, slots=True)
class TensorBatch:
    """A minibatch; with a memory, its rows are packed sequences."""

    rows: RolloutTensors
    batch_sizes: Any = None
    carry: Any = None
    """What is remembered where each sequence begins."""


def one_axis(array: NDArray[Any]) -> NDArray[Any]:
    """`[rows, slots, ...]` as (rows × slots, ...)."""
    return array.reshape(-1, *array.shape[2:])
