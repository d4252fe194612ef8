"""Observations -> features: one encoder per leaf of the space, joined side by side.

leaves = split(space, obs)        arrays, in the order of the space
encoder(leaves)                   (rows, width)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.engine.adapters.team import MASK_KEY
from corral.errors import SpaceMismatch
from corral.learners.nets.cnn import Cnn, is_image
from corral.learners.torch_import import functional, nn, torch

# Features of an image that is the whole observation, and of one among others.
IMAGE_FEATURES, IMAGE_FEATURES_BESIDE_OTHERS = 512, 256
ENCODED_SPACES = (
    *(spaces.Box, spaces.Discrete, spaces.MultiDiscrete),
    *(spaces.MultiBinary, spaces.Text),
)
# Numbers that each character of a text becomes.
CHARACTER_FEATURES = 8
# What a wrapper can return instead of other spaces.
INSTEAD = {
    "Sequence": "a Box for the longest sequence, filled up with zeros",
    "Graph": "a Dict of two Boxes: the nodes, and which ones are connected",
    "OneOf": "a Dict: a Discrete that says which one it is, and all of them",
}


def leaf_spaces(
    space: spaces.Space[Any], path: str = "observation"
) -> Iterator[tuple[str, spaces.Space[Any]]]:
    """Every leaf of a space with the way to it."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, inner in _inner(space):
            yield from leaf_spaces(inner, f"{path}[{key!r}]")
    elif isinstance(space, ENCODED_SPACES):
        yield path, space
    else:
        instead = INSTEAD.get(type(space).__name__, "a Box")
        raise SpaceMismatch(
            f"{path} is {space}; networks read Box, Discrete, MultiDiscrete, "
            "MultiBinary, Text, and Dict and Tuple of them. Add a wrapper that returns "
            f"one of these, such as {instead}: a gymnasium.ObservationWrapper, in a "
            "config `wrappers: [my_module:MyWrapper]`"
        )


def split(space: spaces.Space[Any], obs: Any) -> list[NDArray[Any]]:
    """Return the leaves of a batch with any leading axes."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return [leaf for key, inner in _inner(space) for leaf in split(inner, obs[key])]
    return [characters(space, obs)] if isinstance(space, spaces.Text) else [obs]


def characters(space: spaces.Text, texts: Any) -> NDArray[np.int64]:
    """Return numbers of characters from 1, `(..., max_length)`; 0 after the end."""
    values = np.empty(np.shape(texts), object)
    values[...] = texts
    codes = np.zeros((values.size, space.max_length), np.int64)
    for row, text in enumerate(values.ravel()):
        codes[row, : len(text)] = [space.character_index(one) + 1 for one in text]
    return codes.reshape(*values.shape, space.max_length)


def mask_leaf(space: spaces.Space[Any], action_space: spaces.Space[Any]) -> int | None:
    """The number of the leaf that masks actions; None if there is none."""
    if isinstance(action_space, spaces.Discrete):
        options = int(action_space.n)
    elif isinstance(action_space, spaces.MultiDiscrete):
        options = int(action_space.nvec.sum())
    else:
        return None
    masks = f"observation[{MASK_KEY!r}]"
    for number, (path, leaf) in enumerate(leaf_spaces(space)):
        if path == masks and leaf.shape == (options,):
            return number
    return None


def _inner(
    space: spaces.Dict | spaces.Tuple[Any],
) -> Iterable[tuple[Any, spaces.Space[Any]]]:
    parts = space.spaces
    return parts.items() if isinstance(parts, dict) else enumerate(parts)


class Flat(nn.Module):  # type: ignore[misc]
    """Numbers as they are, in one row."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.width = int(np.prod(shape))

    def forward(self, x: Any) -> Any:
        """(rows, ...) -> (rows, width)."""
        return x.reshape(x.shape[0], self.width).float()


class OneHot(nn.Module):  # type: ignore[misc]
    """A one in the place of each number that was chosen."""

    def __init__(self, counts: NDArray[Any], starts: NDArray[Any]) -> None:
        super().__init__()
        self._counts = [int(count) for count in counts.ravel()]
        self.register_buffer("starts", torch.as_tensor(starts.ravel()).long())
        self.width = sum(self._counts)

    def forward(self, x: Any) -> Any:
        """(rows, ...) of integers -> (rows, width)."""
        chosen = x.reshape(x.shape[0], len(self._counts)).long() - self.starts
        parts = [
            functional.one_hot(chosen[:, place], count)
            for place, count in enumerate(self._counts)
        ]
        return torch.cat(parts, 1).float()


class Characters(nn.Module):  # type: ignore[misc]
    """A few numbers for each character, in its place."""

    def __init__(self, space: spaces.Text, generator: Any) -> None:
        super().__init__()
        count = len(space.character_set) + 1
        shape = (count, CHARACTER_FEATURES)
        self.table = nn.Parameter(torch.randn(shape, generator=generator))
        self.width = space.max_length * CHARACTER_FEATURES

    def forward(self, codes: Any) -> Any:
        """(rows, max_length) of codes -> (rows, width)."""
        return functional.embedding(codes, self.table).flatten(1)


class Encoder(nn.Module):  # type: ignore[misc]
    """An observation's leaves -> features."""

    def __init__(
        self, space: spaces.Space[Any], scale_images: bool, generator: Any
    ) -> None:
        super().__init__()
        leaves = list(leaf_spaces(space))
        pixels = IMAGE_FEATURES if len(leaves) == 1 else IMAGE_FEATURES_BESIDE_OTHERS
        self.parts = nn.ModuleList(
            _part(leaf, pixels, scale_images, generator) for _, leaf in leaves
        )
        self._forwards = [part.forward for part in self.parts]
        self.width = sum(part.width for part in self.parts)

    def forward(self, leaves: Sequence[Any]) -> Any:
        """Tensors of (rows, ...) -> (rows, width)."""
        if len(leaves) == 1:
            return self._forwards[0](leaves[0])
        pairs = zip(self._forwards, leaves, strict=True)
        return torch.cat([forward(leaf) for forward, leaf in pairs], 1)


def _part(
    space: spaces.Space[Any], pixels: int, scale_images: bool, generator: Any
) -> Any:
    if isinstance(space, spaces.Text):
        return Characters(space, generator)
    if is_image(space):
        return Cnn(tuple(space.shape or ()), pixels, scale_images, generator)
    return part_for(space)


def part_for(space: spaces.Space[Any]) -> Any:
    """Return the encoder of a leaf of numbers, which has no weights."""
    if isinstance(space, spaces.Discrete):
        return OneHot(np.array([space.n]), np.array([space.start]))
    if isinstance(space, spaces.MultiDiscrete):
        return OneHot(space.nvec, space.start)
    shape = space.shape
    assert shape is not None, "boxes and bits have a shape"
    return Flat(shape)
