"""A file of frames as MP4 and GIF, in full size: a program of its own.

    python -m corral.train.sinks.encode_video step-000.frames 30 mp4 gif

A video appears under its name when it is whole; then the frames are removed.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corral.errors import requires
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
    pictures = frames_in(frames)
    first = next(pictures)
    # Codecs take even sizes only: at most one row and one column are added.
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (first.shape[1], first.shape[0]),
        fps=fps,
        macro_block_size=2,
        ffmpeg_log_level="error",
        output_params=["-f", "mp4", "-movflags", "+faststart"],
    )
    writer.send(None)
    for picture in itertools.chain([first], pictures):
        writer.send(picture.tobytes())
    writer.close()


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
