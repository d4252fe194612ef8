"""How long a process was ready to run and waited for a core."""

from __future__ import annotations

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

    It goes on while the thread waits for something else: a sleep, a file, a server.
    """
    return time.perf_counter() - (run_delay("thread-self") or 0.0)
