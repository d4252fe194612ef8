"""What a worker prints and logs, written to a file instead of the caller's terminal."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path


def write_output_to(path: str | os.PathLike[str]) -> None:
    """Send to a file what this worker prints from now on; C libraries print as well."""
    with open(path, "ab") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    # Instead of the handler that forwards records to the caller's loggers.
    logging.basicConfig(stream=sys.stderr, force=True)


def last_output(path: str | os.PathLike[str], size: int) -> str:
    """The end of such a file, so many bytes; "" if it was never opened."""
    if not os.path.exists(path):
        return ""
    with Path(path).open("rb") as file:
        file.seek(max(0, os.path.getsize(path) - size))
        return file.read().decode(errors="replace")
