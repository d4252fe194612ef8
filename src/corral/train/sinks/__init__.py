"""Destinations of metrics; the training loop is their only caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Sink(Protocol):
    """Receives metrics as they come."""

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Metrics that belong to one moment, counted in env steps."""

    def close(self) -> None:
        """Write everything that is left; afterwards nothing is written any more."""
