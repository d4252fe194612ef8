"""Convolutions for images: the layers of the 2015 Atari paper, or small ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from corral.learners.nets.mlp import HIDDEN_GAIN, dense, orthogonal
from corral.learners.torch_import import functional, nn, torch

Layers = tuple[tuple[int, int, int], ...]

# (channels, kernel, stride) for images of at least 36 × 36.
LARGE: Layers = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
# For smaller ones.
SMALL: Layers = ((16, 3, 1), (32, 3, 1))
MIN_IMAGE_SIDE = 36


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether it is encoded with convolutions: bytes, in two or three dimensions."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and len(space.shape) in (2, 3)
        and min(_height_and_width(space.shape)) >= 1 + sum(k - 1 for _, k, _ in SMALL)
    )


def _channels_last(shape: tuple[int, ...]) -> bool:
    """Channels are fewer than rows or columns; where it is a tie, they come first."""
    return len(shape) == 3 and shape[2] < shape[0]


def _height_and_width(shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) == 2:
        return shape
    return shape[:2] if _channels_last(shape) else shape[1:]


class Cnn(nn.Module):  # type: ignore[misc]
    """Images of bytes, (rows, height, width), channels first or last -> features."""

    def __init__(
        self, shape: tuple[int, ...], width: int, scale: bool, generator: Any
    ) -> None:
        super().__init__()
        size = _height_and_width(shape)
        layers = LARGE if min(size) >= MIN_IMAGE_SIDE else SMALL
        self._flat = len(shape) == 2
        self._channels_last = _channels_last(shape)
        self._strides = [stride for _, _, stride in layers]
        self._divisor = 255.0 if scale else 1.0
        channels = 1 if self._flat else shape[2 if self._channels_last else 0]
        self.convolutions = nn.ModuleList()
        for outputs, kernel, stride in layers:
            layer = nn.utils.skip_init(nn.Conv2d, channels, outputs, kernel, stride)
            self.convolutions.append(orthogonal(layer, HIDDEN_GAIN, generator))
            channels = outputs
            size = tuple((length - kernel) // stride + 1 for length in size)
        pixels = channels * size[0] * size[1]
        self.dense = dense(pixels, width, HIDDEN_GAIN, generator)
        self.width = width

    def forward(self, x: Any) -> Any:
        """(rows, ...) of bytes -> (rows, width)."""
        if self._flat:
            x = x.unsqueeze(1)
        elif self._channels_last:
            x = x.permute(0, 3, 1, 2)
        x = x.float() / self._divisor
        for layer, stride in zip(self.convolutions, self._strides, strict=True):
            x = torch.relu(functional.conv2d(x, layer.weight, layer.bias, stride))
        return torch.relu(self.dense(x.flatten(1)))
