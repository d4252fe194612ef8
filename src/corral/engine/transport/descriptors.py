"""File descriptors: files, sockets and pipes, of which a process may open only so many.

    soft limit   enforced by the kernel; a process may raise its own
    hard limit   the most that the soft limit can be raised to

Guarantees:
    - Once `make_room` has returned, so many more can be opened.
    - The soft limit is raised only when that is needed, and only as far: programs that
      walk through all numbers up to it, or use select(), get slow or lost in millions.
    - `original_limit` says what it was, so that workers can be given that.
Assumes:
    - No other thread opens many at the same time; else EMFILE is raised all the same.
"""

from __future__ import annotations

import errno
import math
import os

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

# How many more than asked for are made room for: the caller opens files as well.
SPARE_DESCRIPTORS = 64

# The soft limit before Corral raised it; None if it never did.
original_limit: int | None = None


def make_room(count: int) -> None:
    """Raise the soft limit if needed, so that this many descriptors can be opened.

    Raises:
        OSError: they cannot; the text has the numbers.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = open_count()
    limit = needed_limit(taken + count, soft, hard)
    if limit is None:
        raise OSError(
            errno.EMFILE,
            f"{count} more descriptors are needed and {taken} are open, but this "
            f"process may have no more than {hard} (its hard limit; the soft one is "
            f"{soft})",
        )
    if limit != soft:
        global original_limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        original_limit = original_limit or soft


def needed_limit(wanted: int, soft: int, hard: int) -> int | None:
    """The soft limit to have, at most `hard`; None if that is not enough."""
    usable, most = (math.inf if limit < 0 else limit for limit in (soft, hard))
    if wanted <= usable:  # RLIM_INFINITY is -1
        return soft
    return int(min(wanted + SPARE_DESCRIPTORS, most)) if wanted <= most else None


def open_count() -> int:
    """How many are open; 0 where the system does not tell."""
    # Less the one that the listing took.
    return len(os.listdir("/dev/fd")) - 1 if os.path.isdir("/dev/fd") else 0


def restore_limit(soft: int) -> None:
    """In a worker: take the soft limit that our parent had been given."""
    if resource is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
