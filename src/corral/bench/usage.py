"""What this process and its children use: the one place that imports psutil."""

from __future__ import annotations

import time
from collections.abc import Iterator

from corral.errors import MissingExtra
from corral.supervision.memory import memory_of
from corral.supervision.run_delay import run_delay

try:
    import psutil
except ImportError as error:
    raise MissingExtra(
        "measuring memory and CPU needs psutil: pip install 'corral[bench]'"
    ) from error


def cpu_seconds() -> float:
    """CPU time of this process and its living children so far."""
    total = time.process_time()
    for child in _children():
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue  # it ended meanwhile
        total += times.user + times.system
    return total


def queued_seconds() -> float:
    """How long this thread was ready to run without getting a core; 0 if unknown."""
    return run_delay("thread-self") or 0.0


def memory() -> int:
    """Bytes of this process and its children, shared pages counted once."""
    me = psutil.Process()
    pids = [me.pid, *(child.pid for child in _children())]
    return sum(memory_of(pid) or 0 for pid in pids)


def total_memory() -> int:
    """Bytes this machine has."""
    return int(psutil.virtual_memory().total)


def _children() -> Iterator[psutil.Process]:
    yield from psutil.Process().children(recursive=True)
