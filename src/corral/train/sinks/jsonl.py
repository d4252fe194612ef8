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
    text = Path(path).read_text(encoding="utf-8", errors="replace")
    return [line for line in map(_parsed, text.splitlines()) if line]


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
            lines = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [line for line in map(_parsed, lines) if line]


def _parsed(text: str) -> dict[str, Any]:
    """What a line says; nothing if its writer did not end it well."""
    try:
        line = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return line if isinstance(line, dict) and "step" in line else {}


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
