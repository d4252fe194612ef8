"""Policies as plain torch modules: raw observations -> the most likely actions.

    module(observation)            an array, rows first
    module(camera, arm)            the leaves of a Dict or Tuple, in its order
    module(observation, hidden)    with a memory: an action, and what it remembers then

Scaling of observations and bounds of actions are inside. The modules use nothing of
Corral but their classes, so that torch.export and ONNX can write them down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.errors import SpaceMismatch
from corral.learners.nets.memory import Lstm, Memory
from corral.learners.nets.mlp import Mlp
from corral.learners.torch_import import functional, nn, torch
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.space_rows import SpaceParts

ACTIVATION_MODULES = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}


class ExportedPolicy(nn.Module):  # type: ignore[misc]
    """Scales, encoder, actor and choice, one after the other.

    Attributes:
        reads: Parts of observations that it takes -> names of its inputs; None for all,
            under their own names.
        takes: More inputs, `(rows,)`.
        carry: Inputs that come out again after the action, for the next step -> width.
    """

    reads: Mapping[str, str] | None = None
    takes: tuple[str, ...] = ()
    carry: Mapping[str, int] = MappingProxyType({})

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
        return self.chosen(self.actor(self.features(leaves)), leaves)

    def features(self, leaves: Sequence[Any]) -> Any:
        """Leaves of observations to what the actor sees."""
        pairs = zip(self.scales, leaves, strict=True)
        return self.encoder([scale(leaf) for scale, leaf in pairs])

    def chosen(self, outputs: Any, leaves: Sequence[Any]) -> Any:
        """The likeliest allowed actions."""
        if self._mask is not None:
            outputs = without_forbidden(outputs, leaves[self._mask])
        return self.choice(outputs)


def without_forbidden(outputs: Any, allowed: Any) -> Any:
    """Outputs of options that are not allowed, made smaller than all others."""
    # In double: where a mask allows nothing, the largest stays the largest.
    return outputs.double() - 1e9 * (allowed == 0)


class RecurrentPolicy(ExportedPolicy):
    """The same with a memory between encoder and actor."""

    def __init__(self, memory: Memory, *parts: Any) -> None:
        super().__init__(*parts)
        self.memory = PlainMemory(memory)
        self.carry = self.memory.carry

    def forward(self, *inputs: Any) -> Any:
        """Leaves and carry to actions and carry."""
        count = len(self.scales)
        carry = self.memory(self.features(inputs[:count]), *inputs[count:])
        return (self.chosen(self.actor(carry[0]), inputs[:count]), *carry)


class PlainMemory(nn.Module):  # type: ignore[misc]
    """A step of a GRU or LSTM by operations that every format knows.

    Attributes:
        carry: Names and widths of what it remembers.
    """

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        for name in ("inward", "onward", "inward_bias", "onward_bias"):
            self.register_buffer(name, getattr(memory, name).detach().clone())
        self._is_lstm = isinstance(memory, Lstm)
        names = ("hidden", "cell") if self._is_lstm else ("hidden",)
        self.carry = dict.fromkeys(names, memory.width)

    def forward(self, x: Any, hidden: Any, cell: Any = None) -> tuple[Any, ...]:
        """What is remembered after `x`; the first of it is what comes out."""
        inward = functional.linear(x, self.inward, self.inward_bias)
        onward = functional.linear(hidden, self.onward, self.onward_bias)
        if self._is_lstm:
            enter, keep, new, out = (inward + onward).chunk(4, 1)
            cell = keep.sigmoid() * cell + enter.sigmoid() * new.tanh()
            return out.sigmoid() * cell.tanh(), cell
        reset_in, keep_in, new_in = inward.chunk(3, 1)
        reset_on, keep_on, new_on = onward.chunk(3, 1)
        keep = (keep_in + keep_on).sigmoid()
        new = (new_in + (reset_in + reset_on).sigmoid() * new_on).tanh()
        return (new + keep * (hidden - new),)


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
