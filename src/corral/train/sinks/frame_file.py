"""Frames on disk until their video is encoded: an episode's would fill the memory."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Bytes of a frame when compressed, height and width.
_HEAD = struct.Struct("<3q")


class FrameFile:
    """A file of frames, written one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._file = path.open("wb")

    def add(self, frame: Any) -> None:
        """Write one more."""
        array = checked_frame(frame)[..., :3]
        packed = zlib.compress(array.tobytes(), 1)
        self._file.write(_HEAD.pack(len(packed), *array.shape[:2]) + packed)
        self.count += 1

    def close(self) -> None:
        """Write what is left."""
        self._file.close()

    def discard(self) -> None:
        """Close and remove it."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def frames_in(path: Path) -> Iterator[NDArray[np.uint8]]:
    """The frames of a file, one by one."""
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            size, height, width = _HEAD.unpack(head)
            pixels = np.frombuffer(zlib.decompress(file.read(size)), np.uint8)
            yield pixels.reshape(height, width, 3)


def checked_frame(frame: Any) -> NDArray[np.uint8]:
    """A copy, since some envs draw on the same canvas each time; TypeError if none."""
    array = np.array(frame)
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] < 3:
        kind = "None" if frame is None else f"{array.dtype} of shape {array.shape}"
        raise TypeError(f"render returned {kind}; it must be uint8, (height, width, 3)")
    return array


def draw_without_display() -> None:
    """Have pygame and MuJoCo draw in memory where there is no display."""
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl")
