"""Metrics as lines of JSON: one line per moment, whole or not there.

    {"step": 2048, "episode/return": 87.5, "learn/entropy": 0.61}

Guarantees: a line is on its way to the disk when `append` returns, so a killed run
loses nothing that it wrote; a number that is not finite is written as null.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from numbers import Real
from typing import Any

from corral.engine.whole_file import writing

# Bytes at the end of a file in which the latest lines are looked for.
LATEST_BYTES = 1 << 16
StrPath = str | os.PathLike[str]


def append(path: StrPath, rows: Iterable[Mapping[str, Any]], step: int) -> None:
    """Append a line for each row of the same moment, counted in env steps."""
    left = "".join(_line(row, step) for row in rows).encode()
    with writing(path), open(path, "ab", buffering=0) as file:
        while left:  # a disk that is nearly full takes a part, and says so later
            left = left[file.write(left) :]


def _line(metrics: Mapping[str, Any], step: int) -> str:
    values = {
        name: None if isinstance(value, Real) and not math.isfinite(value) else value
        for name, value in metrics.items()
    }
    return json.dumps({"step": step, **values}, allow_nan=False) + "\n"


def read(path: StrPath, last_bytes: int | None = None) -> list[dict[str, Any]]:
    """The lines of such a file, or those in its last bytes; none if it is not there.

    A line that its writer did not end well is left out.
    """
    found = []
    try:
        with open(path, "rb") as file:
            if last_bytes is not None:
                file.seek(max(0, os.path.getsize(path) - last_bytes))
            texts = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    for text in texts:
        with suppress(json.JSONDecodeError):
            found.append(json.loads(text))
    return [line for line in found if isinstance(line, dict) and "step" in line]


def latest(path: StrPath, names: Iterable[str]) -> dict[str, Any]:
    """The latest value of each name, looked for near the end of the file alone."""
    found: dict[str, Any] = {}
    for line in read(path, LATEST_BYTES):
        found |= {name: line[name] for name in names if line.get(name) is not None}
    return found
