"""The rows of a learner's replay, in files beside the checkpoints.

checkpoints/replay/
  header.json                              columns, capacity
  000000000000-000000032000-5f1c09ab.npy   rows 0 to 31,999, and their CRC
  000000032000-000000064000-93d0e2c4.npy   those that the next checkpoint added

A checkpoint lists its files. They are written before it and never changed; those that
no checkpoint lists are removed after it. So a kill at any moment, or a full disk,
leaves the last checkpoint usable.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from corral.engine.whole_file import writing
from corral.errors import CheckpointError
from corral.rollouts.replay import Replay
from corral.train.run.directory import replacing, write_text

Rows = NDArray[np.float32]
# Of one file, so that a copy of them takes little memory.
MAX_ROWS = 1 << 18
_NAME = re.compile(r"(\d{12})-(\d{12})-[0-9a-f]{8}\.npy")


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with some rows.

    Attributes:
        last: The row after its last one; rows are counted from the beginning of the
            run.
    """

    name: str
    first: int
    last: int

    @classmethod
    def of(cls, first: int, rows: Rows) -> Segment:
        """Name the file of these rows; equal names mean equal rows."""
        last = first + len(rows)
        crc = zlib.crc32(np.ascontiguousarray(rows).data)
        return cls(f"{first:012}-{last:012}-{crc:08x}.npy", first, last)

    @classmethod
    def named(cls, name: str) -> Segment:
        """Read a name."""
        found = _NAME.fullmatch(name)
        if found is None:
            raise CheckpointError(f"{name!r:.60} is not the name of a replay file")
        return cls(name, int(found[1]), int(found[2]))


class ReplayFiles:
    """Saves and restores a replay.

    Args:
        folder: of the files.
        replay: of the learner; None if it has none, and then nothing is written.
    """

    def __init__(self, folder: Path, replay: Replay | None) -> None:
        self._folder = folder
        self._replay = replay
        # Files with the rows of the replay, in their order.
        self._segments: list[Segment] = []

    # Writing --------------------------------------------------------------------------

    def save(self) -> list[str]:
        """Write the rows that no file has yet; return the names for a checkpoint."""
        replay = self._replay
        if replay is None or not replay.total:
            return []
        self._write_header(replay)
        oldest = replay.total - len(replay)
        kept = [segment for segment in self._segments if segment.last > oldest]
        first = kept[-1].last if kept else oldest
        for start in range(first, replay.total, MAX_ROWS):
            rows = replay.rows(start, min(start + MAX_ROWS, replay.total))
            kept.append(self._written(start, rows))
        self._segments = kept
        return [segment.name for segment in kept]

    def _write_header(self, replay: Replay) -> None:
        with writing(self._folder):
            self._folder.mkdir(exist_ok=True)
        path = self._header
        if not path.exists():
            write_text(path, json.dumps(_header_of(replay), indent=2) + "\n")

    def _written(self, first: int, rows: Rows) -> Segment:
        segment = Segment.of(first, rows)
        path = self._folder / segment.name
        if not path.exists():  # else an interrupted save left it
            with replacing(path) as file:
                header = npy.header_data_from_array_1_0(rows)
                npy.write_array_header_1_0(file, header)
                file.write(rows.data)
        return segment

    def remove_old(self) -> None:
        """Remove the files that are not among those of the latest `save`."""
        kept = {self._header.name, *(segment.name for segment in self._segments)}
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.name not in kept:
                    path.unlink(missing_ok=True)

    # Reading --------------------------------------------------------------------------

    def load(self, names: Sequence[str], source: Path) -> None:
        """Restore the rows after the learner has loaded its state.

        Args:
            names: what `save` returned.
            source: the checkpoint.
        """
        replay = self._replay
        if replay is None or not replay.total:
            return
        if not names:
            raise CheckpointError(
                f"{source} has no replay: only last.pt and interrupted.pt have one. "
                "Resume from one of these, or start a new run with the weights of this "
                f"one: --init-from {source}"
            )
        self._check_header(replay)
        segments = [Segment.named(name) for name in names]
        oldest = place = replay.total - len(replay)
        for segment in segments:
            rows = self._read(segment, replay.width)
            if segment.first > place:
                break
            unused = max(0, oldest - segment.first)
            replay.restore(segment.first + unused, rows[unused:])
            place = segment.last
        if place != replay.total:
            raise CheckpointError(
                f"{source} lists replay files with rows up to {place:,} of "
                f"{replay.total:,}; {self._advice}"
            )
        self._segments = segments

    def _check_header(self, replay: Replay) -> None:
        try:
            found = json.loads(self._header.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is damaged"
            raise CheckpointError(
                f"{self._header} cannot be read: {reason}; {self._advice}"
            ) from None
        wanted = _header_of(replay)
        if found != wanted:
            raise CheckpointError(
                f"{self._folder} is the replay of another env or learner: its header "
                f"is {found}, and this run's is {wanted}; {self._advice}"
            )

    def _read(self, segment: Segment, width: int) -> Rows:
        path = self._folder / segment.name
        try:
            rows: Rows = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing; {self._advice}") from None
        except (OSError, ValueError, EOFError) as error:
            raise CheckpointError(
                f"{path} is cut short or damaged ({error}); {self._advice}"
            ) from None
        shape = (segment.last - segment.first, width)
        fits = rows.shape == shape and rows.dtype == np.float32
        if not fits or Segment.of(segment.first, rows) != segment:
            raise CheckpointError(
                f"{path} is damaged: its rows are not those that were saved; "
                f"{self._advice}"
            )
        return rows

    @property
    def _header(self) -> Path:
        return self._folder / "header.json"

    @property
    def _advice(self) -> str:
        return (
            "bring the run's own files back, or start a new run with its weights: "
            f"--init-from {self._folder.parent}"
        )


def replay_of(learner: Any) -> Replay | None:
    """Return the replay of a learner, if it has one."""
    replay = getattr(learner, "replay", None)
    return replay if isinstance(replay, Replay) else None


def _header_of(replay: Replay) -> dict[str, Any]:
    return {"columns": replay.columns, "capacity": replay.capacity, "dtype": "float32"}
