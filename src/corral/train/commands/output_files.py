"""Files that a command leaves behind, and says so."""

from __future__ import annotations

from pathlib import Path

from corral.errors import WriteFailed


def save(path: Path, content: bytes) -> None:
    """Write it where it was asked for; that may also be a device."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise WriteFailed(f"{path} cannot be written: {error.strerror}") from error
    print(f"Written: {path}")
