"""The memory of a process, and how long it was ready to run and waited for a core."""

from __future__ import annotations

import os
import time


def run_delay(process: int | str) -> float | None:
    """Seconds of the process's first thread; None where the system does not count them.

    Args:
        process: its pid, or what Linux calls "thread-self" for the calling thread.
    """
    try:
        with open(f"/proc/{process}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return None  # another system, a kernel without it, or it ended


def own_time() -> float:
    """Seconds of a clock that stops while the calling thread waits for a core.

    It continues while the thread waits for something else: a sleep, a file, a server.
    """
    return time.perf_counter() - (run_delay("thread-self") or 0.0)


def memory_of(pid: int) -> int | None:
    """Bytes of a process, shared pages counted by its share; None if unknown.

    Linux's proportional set size where it can be read, else the resident set, in which
    the block counts for every process that has touched it.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
            found = (line.split()[1] for line in lines if line.startswith("Pss:"))
            return int(next(found)) * 1024
    except (OSError, StopIteration):
        pass  # another user's process, or a kernel without it
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as pages:
            return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
