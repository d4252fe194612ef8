"""What every sink can do; the training loop is the only caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Sink(Protocol):
    """Takes metrics as they come and forgets or keeps them."""

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Metrics that belong to one moment, counted in env steps."""

    def close(self) -> None:
        """Bring everything home; afterwards nothing is written any more."""
