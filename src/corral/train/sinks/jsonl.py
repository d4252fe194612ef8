"""Metrics as lines of JSON: one line per moment, whole or not there.

    {"step": 2048, "episode/return": 87.5, "learn/entropy": 0.61}

Guarantees: a line is on its way to the disk when `write` returns, so a killed run loses
nothing that it wrote; a number that is not finite is written as null.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Any

from corral.errors import WriteFailed

LATEST_BYTES = 1 << 16
"""Bytes at the end of a file that `last_lines` reads."""


class JsonlSink:
    """Appends to a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = _open(self.path)

    def write(self, metrics: Mapping[str, float], step: int) -> None:
        """Append one line."""
        self.write_all([metrics], step)

    def write_all(self, rows: Iterable[Mapping[str, float]], step: int) -> None:
        """Append several lines of the same moment."""
        left = "".join(_line(row, step) for row in rows).encode()
        try:
            while left:  # a disk that is nearly full takes a part, and says so later
                left = left[self._file.write(left) :]
        except OSError as error:
            raise _failed(self.path, error) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The lines of such a file; what its writer did not end well is left out."""
    return _parsed(Path(path).read_bytes())


def latest(path: str | os.PathLike[str], names: Iterable[str]) -> dict[str, Any]:
    """The latest value of each name, looked for near the end of the file alone."""
    found: dict[str, Any] = {}
    for line in last_lines(path):
        found |= {name: line[name] for name in names if line.get(name) is not None}
    return found


def last_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The lines near the end of the file; none if there is no file."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - LATEST_BYTES))
            return _parsed(file.read())
    except FileNotFoundError:
        return []


def _parsed(content: bytes) -> list[dict[str, Any]]:
    """What the lines say, without those that their writer did not end well."""
    found = []
    for text in content.decode(errors="replace").splitlines():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(text))
    return [line for line in found if isinstance(line, dict) and "step" in line]


def _line(metrics: Mapping[str, float], step: int) -> str:
    values = {name: _finite(value) for name, value in metrics.items()}
    return json.dumps({"step": step, **values}, allow_nan=False) + "\n"


def _open(path: Path) -> Any:
    try:
        # Unbuffered: each line is one write of its own.
        return open(path, "ab", buffering=0)
    except OSError as error:
        raise _failed(path, error) from error


def _failed(path: Path, error: OSError) -> WriteFailed:
    return WriteFailed(f"{path} cannot be written: {error.strerror}")


def _finite(value: Any) -> Any:
    """The value, if it is no number that JSON does not know."""
    return None if isinstance(value, Real) and not math.isfinite(value) else value
