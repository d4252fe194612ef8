"""The frames of a video, kept and put together beside the env that draws them.

They are large, and to put them together takes seconds: neither is for the process that
trains. Workers import this, so it imports no learner.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.worker.context import this_worker

MAX_FRAMES = 300
"""Fewer than so many are kept at a time."""
NICENESS = 10
"""As `nice` counts: training that needs all cores leaves a video a tenth of one."""


class VideoFrames:
    """Pictures of one episode; of a long one every second, fourth, ... step's."""

    def __init__(self) -> None:
        self.frames: list[NDArray[np.uint8]] = []
        self.stride = 1
        """Steps from one picture to the next."""

    def add(self, frame: Any) -> None:
        """Keep one more."""
        self.frames.append(_checked(frame))
        if len(self.frames) == MAX_FRAMES:
            self.frames = self.frames[::2]
            self.stride *= 2

    def as_gif(self, speed: float) -> bytes:
        """The GIF, with so many steps a second."""
        from corral.train.sinks.video import encode

        return encode(self.frames, speed / self.stride)


def _checked(frame: Any) -> NDArray[np.uint8]:
    array = np.array(frame)  # a copy: some envs draw on the same canvas each time
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] < 3:
        kind = "None" if frame is None else f"{array.dtype} of shape {array.shape}"
        raise TypeError(f"render gave {kind}; a picture is uint8, (height, width, 3)")
    return array


# Asked of a worker whose resource is VideoFrames --------------------------------------


def capture_frame(env: Any) -> int:
    """Take a picture; after so many steps it is time for the next one."""
    frames: VideoFrames = this_worker().resource
    frames.add(env.render())
    return frames.stride


def encode_gif(env: Any, speed: float) -> bytes:
    """All pictures so far as a GIF."""
    frames: VideoFrames = this_worker().resource
    return frames.as_gif(speed)


def lower_priority() -> None:
    """Others that want the core go first; and no window is opened, unless asked for."""
    os.nice(NICENESS)
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl")
