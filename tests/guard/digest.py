"""Values of any kind -> a hash that is the same on every machine.

Types count: 1, 1.0, True and np.float64(1) are four different values.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from corral.errors import Fault

FAULT_FIELDS = (
    *("kind", "command", "slot", "seed", "step", "task", "has_task", "options"),
    *("last_actions", "signal_name", "exit_code", "error_type", "error_text"),
    *("restarts", "gave_up", "beside", "item"),
)


class Digest:
    """One hash for each field that is added to, and how many values went into it."""

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = {}
        self._counts: dict[str, int] = {}

    def add(self, **fields: Any) -> None:
        for name, value in fields.items():
            known = self._hashes.setdefault(name, hashlib.sha256())
            self._counts[name] = self._counts.get(name, 0) + 1
            for part in canonical(value):
                known.update(part)

    def result(self) -> dict[str, str]:
        return {
            name: f"{self._counts[name]}:{known.hexdigest()[:16]}"
            for name, known in sorted(self._hashes.items())
        }


def canonical(value: Any) -> Iterator[bytes]:
    """The value as bytes, with its type; no two different ones alike."""
    if isinstance(value, np.ndarray):
        yield from _array(value)
    elif isinstance(value, np.generic):
        yield f"<{value.dtype.str}>".encode() + value.tobytes()
    elif isinstance(value, float):
        yield b"<float>" + struct.pack("<d", value)
    elif value is None or isinstance(value, (bool, int, str, bytes)):
        yield f"<{type(value).__name__}>{value!r};".encode()
    elif isinstance(value, dict):
        yield f"<dict {len(value)}>".encode()
        for key in sorted(value, key=repr):
            yield from canonical(key)
            yield from canonical(value[key])
    elif isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        yield f"<{kind} {len(value)}>".encode()
        for part in value:
            yield from canonical(part)
    elif isinstance(value, Fault):
        yield from canonical({name: getattr(value, name) for name in FAULT_FIELDS})
    else:
        raise TypeError(f"the guard knows no hash of {type(value)}: {value!r}")


def _array(value: Any) -> Iterator[bytes]:
    if value.dtype == object:
        yield f"<objects {value.shape}>".encode()
        for part in value.ravel():
            yield from canonical(part)
    else:
        yield f"<array {value.dtype.str} {value.shape}>".encode()
        yield np.ascontiguousarray(value).tobytes()
