"""Policies as plain torch modules: raw observations -> the most likely actions.

    module(observation)            an array, rows first
    module(camera, arm)            the leaves of a Dict or Tuple, in its order

Scaling of observations and bounds of actions are inside. The modules use nothing of
Corral but their classes, so that torch.export and ONNX can write them down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.errors import SpaceMismatch
from corral.learners.nets.mlp import Mlp
from corral.learners.torch_import import nn, torch
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.space_rows import SpaceParts

ACTIVATION_MODULES = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}


class ExportedPolicy(nn.Module):  # type: ignore[misc]
    """Scales, encoder, actor and choice, one after the other."""

    def __init__(
        self,
        scales: Sequence[Any],
        encoder: Any,
        actor: Any,
        choice: Any,
        mask: int | None = None,
    ) -> None:
        super().__init__()
        # The number of the leaf that masks actions.
        self._mask = mask
        self.scales = nn.ModuleList(scales)
        self.encoder = encoder
        self.actor = actor
        self.choice = choice

    def forward(self, *leaves: Any) -> Any:
        """Leaves of observations, `(rows, ...)`, to actions."""
        pairs = zip(self.scales, leaves, strict=True)
        scaled = [scale(leaf) for scale, leaf in pairs]
        outputs = self.actor(self.encoder(scaled))
        if self._mask is not None:
            # In double: where a mask allows nothing, the largest stays the largest.
            outputs = outputs.double() - 1e9 * (leaves[self._mask] == 0)
        return self.choice(outputs)


class Scale(nn.Module):  # type: ignore[misc]
    """Subtracts a mean, multiplies, and clips: in float64, as `ObsNorm` does."""

    def __init__(self, mean: NDArray[Any], scale: NDArray[Any], clip: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(np.array(mean, np.float64)))
        self.register_buffer("scale", torch.as_tensor(np.array(scale, np.float64)))
        self._clip = float(clip)

    def forward(self, x: Any) -> Any:
        """`(rows, ...)` to the same in float32."""
        scaled = (x.double() - self.mean) * self.scale
        return scaled.clamp(-self._clip, self._clip).float()


def scales_for(space: spaces.Space[Any], norm: ObsNorm | None) -> list[Any]:
    """Return a module for each leaf of the observations."""
    parts = SpaceParts(space).parts
    if norm is None:
        return [nn.Identity() for _ in parts]
    known = [norm.norms.get(part.name) for part in parts]
    return [
        nn.Identity() if one is None else Scale(one.mean, one.scale, norm.clip)
        for one in known
    ]


def plain_mlp(mlp: Mlp, last: Any) -> Any:
    """Return a tower and the layer after it as `nn.Sequential` of `nn.Linear`."""
    layers: list[Any] = []
    for layer in mlp.layers:
        layers += [_linear(layer), ACTIVATION_MODULES[mlp.activation]()]
    return nn.Sequential(*layers, _linear(last))


def _linear(layer: Any) -> Any:
    plain = nn.utils.skip_init(nn.Linear, layer.in_features, layer.out_features)
    plain.load_state_dict(layer.state_dict())
    return plain


# Choices ------------------------------------------------------------------------------


class Choice(nn.Module):  # type: ignore[misc]
    """Base of what makes actions of an actor's outputs."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        self._shape = tuple(space.shape or ())
        self._dtype = torch.as_tensor(np.zeros((), space.dtype)).dtype

    def shaped(self, actions: Any) -> Any:
        """As the env takes them: rows of the space's shape and dtype."""
        return actions.reshape(-1, *self._shape).to(self._dtype)


class LargestOption(Choice):
    """Discrete and MultiDiscrete: the option with the largest output."""

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        super().__init__(space)
        counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
        self._counts = [int(n) for n in np.ravel(counts)]
        start = torch.as_tensor(np.ravel(space.start).astype(np.int64))
        self.register_buffer("start", start)

    def forward(self, outputs: Any) -> Any:
        """`(rows, options of all choices)` to actions."""
        parts = torch.split(outputs, self._counts, dim=1)
        picked = torch.stack([part.argmax(1) for part in parts], 1)
        return self.shaped(picked + self.start)


class LikelierBits(Choice):
    """MultiBinary: 1 where the output is above 0."""

    def forward(self, outputs: Any) -> Any:
        """`(rows, bits)` to actions."""
        return self.shaped(outputs > 0)


class BoundedMean(Choice):
    """Box: the outputs, cut to the bounds of the space."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        for name in ("low", "high"):
            bound = np.ravel(getattr(space, name)).astype(np.float32)
            self.register_buffer(name, torch.as_tensor(bound))

    def forward(self, outputs: Any) -> Any:
        """`(rows, numbers)` to actions."""
        return self.shaped(torch.minimum(torch.maximum(outputs, self.low), self.high))


class SquashedMean(Choice):
    """Box: the tanh of the outputs, stretched to the bounds of the space."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        low, high = (
            np.ravel(one).astype(np.float64) for one in (space.low, space.high)
        )
        numbers = {"middle": (high + low) / 2, "reach": (high - low) / 2}
        for name, bound in {**numbers, "low": low, "high": high}.items():
            self.register_buffer(name, torch.as_tensor(bound))

    def forward(self, outputs: Any) -> Any:
        """`(rows, numbers)` to actions."""
        scaled = torch.tanh(outputs).double() * self.reach + self.middle
        return self.shaped(torch.minimum(torch.maximum(scaled, self.low), self.high))


def choice_for(space: spaces.Space[Any]) -> Choice:
    """Return the choice of the most likely action of a space."""
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        return LargestOption(space)
    if isinstance(space, spaces.MultiBinary):
        return LikelierBits(space)
    if isinstance(space, spaces.Box):
        return BoundedMean(space)
    raise SpaceMismatch(f"actions of {space} cannot be exported")
