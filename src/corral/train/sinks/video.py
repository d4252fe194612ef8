"""Frames as a moving picture: the one place of the package that imports Pillow.

A GIF, since every browser shows one from within a page. Large frames are made smaller
and long episodes shown with fewer of them.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corral.errors import MissingExtra

try:
    from PIL import Image
except ImportError as error:
    raise MissingExtra("a video needs Pillow: pip install 'corral[train]'") from error

VIDEO_WIDTH = 300
MAX_FRAMES = 250
"""At most; of a longer episode every second, third ... one."""
MIN_FRAME_MILLISECONDS = 20
"""Milliseconds of a frame: browsers slow down a GIF that is faster."""


def encode(frames: Sequence[NDArray[np.uint8]], frames_per_second: float) -> bytes:
    """The file, as bytes."""
    stride = -(-len(frames) // MAX_FRAMES)
    pictures = [_small(frame) for frame in frames[::stride]]
    duration = max(
        MIN_FRAME_MILLISECONDS, round(1000 * stride / max(frames_per_second, 1))
    )
    buffer = io.BytesIO()
    pictures[0].save(
        buffer,
        format="GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=duration,
        loop=0,
    )
    return buffer.getvalue()


def _small(frame: NDArray[np.uint8]) -> Image.Image:
    picture = Image.fromarray(np.ascontiguousarray(frame[..., :3]))
    if picture.width > VIDEO_WIDTH:
        height = round(picture.height * VIDEO_WIDTH / picture.width)
        picture = picture.resize((VIDEO_WIDTH, height), Image.Resampling.BILINEAR)
    return picture.quantize(64)
