"""The rows of a rollout as tensors, and minibatches of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.tree import mapped
from corral.learners.torch_import import torch


@dataclass(frozen=True, slots=True)
class RolloutTensors:
    """Tensors of (rows, ...)."""

    leaves: list[Any]
    """Of the observations."""
    chosen: Any
    log_prob: Any
    """Of the chosen actions, by the policy that collected."""
    value: Any
    """Of the observations, by the policy that collected."""
    advantage: Any
    returns: Any

    def at(self, index: NDArray[np.intp]) -> RolloutTensors:
        """Return some rows, copied."""
        places = torch.from_numpy(index).to(self.value.device)
        return self._mapped(lambda tensor: tensor.index_select(0, places))

    def part(self, part: slice) -> RolloutTensors:
        """Return consecutive rows, as views."""
        return self._mapped(lambda tensor: tensor[part])

    def _mapped(self, function: Callable[[Any], Any]) -> RolloutTensors:
        return RolloutTensors(
            *(mapped(function, getattr(self, name)) for name in self.__slots__)
        )

    def quantities(self) -> list[tuple[str, Any]]:
        """Return every quantity with its name for users, causes first."""
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
    """The recurrent state at the beginning of each sequence."""


def one_axis(array: NDArray[Any]) -> NDArray[Any]:
    """`[rows, slots, ...]` as (rows × slots, ...)."""
    return array.reshape(-1, *array.shape[2:])
