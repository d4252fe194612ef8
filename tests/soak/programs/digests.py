"""One number for any value: what an environment makes of its seed and its actions."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np


def digest(*parts: Any) -> int:
    """A number below 2**63 for these values, the same in every process."""
    text = "\0".join(map(written, parts)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") >> 1


def written(value: Any) -> str:
    """A value as text: equal for equal bits, whichever type holds a single number."""
    if isinstance(value, (np.generic, np.ndarray)) and np.ndim(value) == 0:
        return written(value.item())
    if isinstance(value, np.ndarray):
        return f"{value.dtype.str}{value.shape}{value.tobytes().hex()}"
    if isinstance(value, dict):
        parts = [f"{key!r}:{written(value[key])}" for key in sorted(value, key=repr)]
        return "{" + ",".join(parts) + "}"
    if isinstance(value, (list, tuple)):
        return "(" + ",".join(map(written, value)) + ")"
    return repr(value)
