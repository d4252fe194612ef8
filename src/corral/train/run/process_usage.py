"""What this process and its children use: the one place that imports psutil."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from corral.engine.faults.process_memory import memory_of
from corral.engine.faults.run_delay import run_delay
from corral.errors import MissingExtra

try:
    import psutil
except ImportError as error:
    raise MissingExtra(
        "measuring memory and CPU needs psutil: pip install 'corral[bench]', or "
        "'corral[train]' to train"
    ) from error


def cpu_seconds() -> float:
    """CPU time of this process and its children so far, ended ones included."""
    while True:
        ended = _of_ended_children()
        living = sum(map(_cpu_of, _children()))
        if ended == _of_ended_children():  # else one of them counts twice, or not
            return time.process_time() + ended + living


def _of_ended_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _cpu_of(child: psutil.Process) -> float:
    try:
        return float(sum(child.cpu_times()[:4]))  # its own, and its ended children's
    except psutil.Error:
        return 0.0  # it ended meanwhile


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
