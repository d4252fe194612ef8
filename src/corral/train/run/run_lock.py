"""A lock: only one program at a time trains in a run's directory.

Guarantees: the program that holds the lock is the only one, wherever the file system
supports locks; the end of the program, however it comes, releases it.
"""

from __future__ import annotations

import os
import time

from corral.errors import OptionError
from corral.train.run.directory import RunDirectory

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]


LOCK_TRIES, LOCK_PAUSE_SECONDS = 5, 0.02


class RunLock:
    """Held until it is closed."""

    def __init__(self, directory: RunDirectory) -> None:
        self._descriptor: int | None = None
        if fcntl is None:
            return
        self._descriptor = os.open(directory.path, os.O_RDONLY)
        try:
            _lock(self._descriptor)
        except BlockingIOError:
            self.close()
            raise OptionError(
                f"{directory.path} is being trained by another program: wait for its "
                "end, or stop it with Ctrl-C, then resume"
            ) from None
        except OSError:  # no locks there
            self.close()

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def is_held(directory: RunDirectory) -> bool | None:
    """Return whether a program holds the lock; None if unknown."""
    if fcntl is None:
        return None
    descriptor = os.open(directory.path, os.O_RDONLY)
    try:
        # Shared: two that look at the same time do not see each other.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks there
        return None
    finally:
        os.close(descriptor)
    return False


def _lock(descriptor: int) -> None:
    """Alone, or BlockingIOError; `is_held` is waited for, which takes no time."""
    for left in reversed(range(LOCK_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not left:
                raise
            time.sleep(LOCK_PAUSE_SECONDS)
