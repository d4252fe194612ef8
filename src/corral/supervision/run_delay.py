"""How long a process was ready to run and had no core."""

from __future__ import annotations


def run_delay(process: int | str) -> float | None:
    """Seconds since it began, of its first thread; None where nobody counts them.

    Args:
        process: its pid, or what Linux calls "thread-self" for the calling thread.
    """
    try:
        with open(f"/proc/{process}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return None  # another system, a kernel without it, or it ended
