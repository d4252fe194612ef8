"""Observations and actions as vectors of float32: what replays store and nets read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.engine.adapters.flattened_agents import flat_batch
from corral.errors import SpaceMismatch
from corral.learners.nets.cnn import is_image
from corral.learners.nets.encoders import leaf_spaces, part_for, split
from corral.learners.torch_import import nn, torch

Array = NDArray[np.float32]


class ObsVector:
    """Joins the leaves of an observation; integers become one-hot."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self._space = space
        for path, leaf in leaf_spaces(space):
            if is_image(leaf) or isinstance(leaf, spaces.Text):
                kind = "a text" if isinstance(leaf, spaces.Text) else "an image"
                raise SpaceMismatch(
                    f"{path} is {leaf}, {kind}; SAC and TD3 take vectors. Wrap the "
                    "env to return features, or train with learner: ppo"
                )
        self.width = spaces.flatdim(space)

    def __call__(self, obs: Any) -> Array:
        """Return `(rows, width)`."""
        return flat_batch(self._space, obs, len(split(self._space, obs)[0]))


class SideBySide(nn.Module):  # type: ignore[misc]
    """What `ObsVector` does, to tensors."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        leaves = [leaf for _, leaf in leaf_spaces(space)]
        self.parts = nn.ModuleList(part_for(leaf) for leaf in leaves)

    def forward(self, leaves: Sequence[Any]) -> Any:
        """Tensors of `(rows, ...)` to `(rows, width)`."""
        pairs = zip(self.parts, leaves, strict=True)
        return torch.cat([part(leaf) for part, leaf in pairs], 1)


class BoxActions:
    """Actions of a Box: -1 to 1 in nets and replays, the space's bounds in the env."""

    discrete = False

    def __init__(self, space: spaces.Box) -> None:
        if not np.isfinite([space.low, space.high]).all():
            raise SpaceMismatch(
                f"the action space is {space}; SAC and TD3 need finite bounds. Wrap "
                "the env with gymnasium.wrappers.RescaleAction or ClipAction"
            )
        self._space = space
        self._middle = (space.high.astype(np.float64) + space.low) / 2
        self._half = (space.high.astype(np.float64) - space.low) / 2
        self.width = int(np.prod(space.shape))

    def to_env(self, chosen: Array) -> NDArray[Any]:
        """Return actions for the env."""
        scaled = chosen.reshape(-1, *self._space.shape) * self._half + self._middle
        inside = np.clip(scaled, self._space.low, self._space.high)
        return inside.astype(self._space.dtype)


class DiscreteActions:
    """Actions of a Discrete space: one-hot in nets and replays."""

    discrete = True

    def __init__(self, space: spaces.Discrete) -> None:
        self._start = int(space.start)
        self.width = int(space.n)

    def to_env(self, chosen: Array) -> NDArray[Any]:
        """Return actions for the env."""
        picked: NDArray[Any] = chosen.argmax(-1).astype(np.int64) + self._start
        return picked


Actions = BoxActions | DiscreteActions


def actions_for(space: spaces.Space[Any], title: str, discrete: bool) -> Actions:
    """Return how a learner stores actions; refuse spaces that it cannot choose from."""
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return BoxActions(space)
    if isinstance(space, spaces.Discrete) and discrete:
        return DiscreteActions(space)
    known = "Box of floats or Discrete" if discrete else "Box of floats"
    raise SpaceMismatch(
        f"the action space is {space}; {title} takes {known}. Wrap the env, or train "
        "with learner: ppo"
    )
