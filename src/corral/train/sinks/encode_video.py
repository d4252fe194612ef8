"""A file of frames as MP4 and GIF, in full size: a program of its own.

    python -m corral.train.sinks.encode_video step-000.frames 30 mp4 gif

A video appears under its name when it is whole; then the frames are removed.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import WriteFailed, requires
from corral.train.sinks.frame_file import frames_in
from corral.train.sinks.video import MIN_FRAME_MILLISECONDS, NICENESS

MP4_PACKAGE = "imageio_ffmpeg"
MP4_MISSING = "an MP4 needs imageio-ffmpeg: pip install 'corral[video]'"
# In this order: a GIF that is whole has its MP4 beside it.
FORMATS = ("mp4", "gif")


def has_mp4() -> bool:
    """Whether MP4s can be encoded here."""
    return importlib.util.find_spec(MP4_PACKAGE) is not None


def encode_mp4(frames: Path, path: Path, fps: float) -> None:
    """Write an MP4 (H.264), which browsers and W&B play."""
    with requires(MP4_MISSING):
        import imageio_ffmpeg
    pictures = map(_even, frames_in(frames))
    first = next(pictures)
    size = f"{first.shape[1]}x{first.shape[0]}"
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(fps), "-i", "-"]
    coded = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error"]
    with subprocess.Popen(
        [*command, *raw, *coded, "-f", "mp4", str(path)], stdin=subprocess.PIPE
    ) as ffmpeg:
        assert ffmpeg.stdin is not None
        for picture in itertools.chain([first], pictures):
            ffmpeg.stdin.write(picture.tobytes())
    if ffmpeg.returncode:
        raise WriteFailed(f"ffmpeg ended with status {ffmpeg.returncode}: {path}")


def _even(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """H.264 takes even sizes only: repeat the last row or column of others."""
    height, width = frame.shape[:2]
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), "edge")


def encode_gif(frames: Path, path: Path, fps: float) -> None:
    """Write a GIF, frame by frame; browsers show at most 50 frames a second."""
    from PIL import Image

    milliseconds = max(MIN_FRAME_MILLISECONDS, round(1000 / max(fps, 1.0)))
    stride = max(1, round(MIN_FRAME_MILLISECONDS * fps / 1000))

    def pictures() -> Iterator[Any]:
        for frame in itertools.islice(frames_in(frames), 0, None, stride):
            yield Image.fromarray(frame).quantize(128)

    every = pictures()
    next(every).save(
        path,
        format="GIF",
        save_all=True,
        append_images=every,
        duration=milliseconds,
        loop=0,
    )


def main(arguments: list[str]) -> None:
    """Encode, and remove the frames."""
    os.nice(NICENESS)
    frames, fps = Path(arguments[0]), float(arguments[1])
    encoders = {"mp4": encode_mp4, "gif": encode_gif}
    for name in FORMATS:
        if name in arguments[2:]:
            draft = frames.with_suffix(f".{name}.draft")
            encoders[name](frames, draft, fps)
            os.replace(draft, frames.with_suffix(f".{name}"))
    frames.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
