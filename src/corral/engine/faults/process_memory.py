"""The memory of a process."""

from __future__ import annotations

import os


def memory_of(pid: int) -> int | None:
    """Bytes of a process, shared pages counted by its share; None if unknown.

    Linux's proportional set size where it can be read, else the resident set, in which
    the block counts for every process that has touched it.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # another user's process, or a kernel without it
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as pages:
            return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
