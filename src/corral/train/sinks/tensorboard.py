"""Metrics for TensorBoard: the one place of the package that writes its files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from corral.errors import MissingExtra, WriteFailed

try:
    from torch.utils.tensorboard.writer import SummaryWriter
except ImportError as error:
    raise MissingExtra(
        "writing for TensorBoard needs tensorboard: pip install 'corral[train]'"
    ) from error


class TensorboardSink:
    """Writes an event file into a folder; `tensorboard --logdir` shows it.

    A resumed run begins another file, which TensorBoard joins to the first.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        self._writer = SummaryWriter(self._folder)

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Queue the scalars; they are written within seconds, and at the end."""
        with self._naming_the_folder():
            for name, value in metrics.items():
                if math.isfinite(value):
                    self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is queued, and close the file."""
        with self._naming_the_folder():
            self._writer.close()

    @contextmanager
    def _naming_the_folder(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise WriteFailed(
                f"{self._folder} cannot be written: {error.strerror}"
            ) from error
