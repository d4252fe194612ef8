"""Files that are whole or not there.

Guarantees: until the new file is complete and on the disk, the old one stays as it is;
a disk that fills up, or a kill, costs the new one alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from corral.errors import WriteFailed


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that takes the place of `path` when it is whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(draft, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise WriteFailed(
            f"{path} cannot be written: {error.strerror or error}"
        ) from error
    finally:
        draft.unlink(missing_ok=True)  # it is gone already if all went well


def write_text(path: Path, text: str) -> None:
    """The same for a text."""
    with replacing(path) as file:
        file.write(text.encode())


def remove_drafts(folder: Path) -> None:
    """Remove what was being written there when programs were killed."""
    for draft in folder.glob(".*.*"):
        if draft.name.rpartition(".")[2].isdecimal():
            draft.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """So that the new name outlives a power cut as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
