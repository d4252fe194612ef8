"""Frames as a moving picture: the one place of the package that imports Pillow.

A GIF, since every browser shows one from within a page. Large frames are made smaller
and long episodes shown with fewer of them. Frames are large, and putting them together
takes seconds, so the worker of the env that draws them does both: this module is
imported there, and imports no learner.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import requires
from corral.train.sinks.frame_file import checked_frame, draw_without_display

with requires("a video needs Pillow: pip install 'corral[train]'"):
    from PIL import Image

VIDEO_WIDTH = 300
# At most; of a longer episode every second, third ... one.
MAX_FRAMES = 250
# Milliseconds of a frame: browsers slow down a GIF that is faster.
MIN_FRAME_MILLISECONDS = 20


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


# Fewer than so many are kept at a time.
KEPT_FRAMES = 300
# As `nice` counts: training that needs all cores leaves a video a tenth of one.
NICENESS = 10


class VideoFrames:
    """Pictures of one episode; of a long one every second, fourth, ... step's."""

    def __init__(self) -> None:
        self.frames: list[NDArray[np.uint8]] = []
        # Steps from one picture to the next.
        self.stride = 1

    def add(self, frame: Any) -> None:
        """Keep one more."""
        self.frames.append(checked_frame(frame))
        if len(self.frames) == KEPT_FRAMES:
            self.frames = self.frames[::2]
            self.stride *= 2


# Asked of a worker that has one env ---------------------------------------------------

_FRAMES = VideoFrames()


def start_video(env: Any, speed: float) -> int:
    """Skip steps that a GIF could not show, of envs with so many steps a second."""
    _FRAMES.frames.clear()
    _FRAMES.stride = max(1, int(speed * MIN_FRAME_MILLISECONDS / 1000))
    return _FRAMES.stride


def capture_frame(env: Any) -> int:
    """Take a picture; after so many steps it is time for the next one."""
    _FRAMES.add(env.render())
    return _FRAMES.stride


def encode_gif(env: Any, speed: float) -> bytes:
    """All pictures so far as a GIF, with so many steps a second."""
    return encode(_FRAMES.frames, speed / _FRAMES.stride)


def lower_priority(then: Callable[[], Any] | None = None) -> None:
    """Others that want the core go first; and no window is opened, unless asked for.

    Args:
        then: what else a worker does when it starts.
    """
    os.nice(NICENESS)
    draw_without_display()
    if then is not None:
        then()
