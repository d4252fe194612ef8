"""Destinations of metrics; the training loop is their only caller."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable


class Sink(Protocol):
    """Receives metrics as they come."""

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Metrics that belong to one moment, counted in env steps."""

    def close(self) -> None:
        """Write everything that is left; afterwards nothing is written any more."""


@runtime_checkable
class VideoSink(Protocol):
    """A sink that takes videos as well."""

    def video(self, name: str, path: Path, step: int) -> None:
        """A video file, MP4 or GIF, of an episode that began at this step."""
