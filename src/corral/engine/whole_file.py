"""Files that are whole or not there.

Until the new file is complete and on the disk, the old one stays as it is; a disk that
fills up, or a kill, costs the new one alone.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from corral.errors import WriteFailed


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Write a file that takes the place of `path` when it is whole.

    Args:
        path: where it will be; beside it the draft is written.
        mode: access rights, without those that the umask takes away.
    """
    draft = path.with_name(f".{path.name}.{threading.get_native_id()}")
    draft.unlink(missing_ok=True)  # of a killed thread that had our number
    try:
        # Exclusively: a link that another user has put there is not followed.
        with open(draft, "xb", opener=partial(os.open, mode=mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        _sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)  # it is gone already if all went well


@contextmanager
def writing(path: object) -> Iterator[None]:
    """Raise WriteFailed, with the path, where this block cannot write to it."""
    try:
        yield
    except OSError as error:
        raise WriteFailed(
            f"{path} cannot be written: {error.strerror or error}"
        ) from error


def _sync_folder(folder: Path) -> None:
    """So that the new name outlives a power cut as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
