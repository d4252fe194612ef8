"""Metrics for TensorBoard: the one place of the package that imports tensorboard."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping

from corral.engine.whole_file import writing
from corral.errors import requires

with requires("writing for TensorBoard needs tensorboard: pip install 'corral[train]'"):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter


class TensorboardSink:
    """Writes an event file into a folder; `tensorboard --logdir` shows it.

    A resumed run begins another file, which TensorBoard joins to the first.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        self._writer = EventFileWriter(self._folder)

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Queue the scalars; they are written within seconds, and at the end."""
        values = [
            Summary.Value(tag=name, simple_value=value)
            for name, value in metrics.items()
            if math.isfinite(value)
        ]
        event = Event(step=step, wall_time=time.time(), summary=Summary(value=values))
        with writing(self._folder):
            self._writer.add_event(event)

    def close(self) -> None:
        """Write what is queued, and close the file."""
        with writing(self._folder):
            self._writer.close()
