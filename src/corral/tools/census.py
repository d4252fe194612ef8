"""What this process holds, counted before and after: nothing may be left behind."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from contextlib import suppress

from corral.errors import requires

with requires("counting processes needs psutil: pip install 'corral[bench]'"):
    import psutil

DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
# Names by kind: processes, threads, descriptors and shared memory.
Census = dict[str, list[str]]


def take_census(others: list[psutil.Process] | None = None) -> Census:
    """Count; `others` are processes that count as our children do."""
    gc.collect()
    process = psutil.Process()
    return {
        "processes": _processes(process, others or []),
        # Without the number that makes each thread's name different.
        "threads": [t.name.rstrip("0123456789-") for t in threading.enumerate()],
        "descriptors": _descriptors(),
        "shared memory": _shared_memory(process),
    }


def added(before: Census, now: Census) -> Census:
    """What is there now and was not before, by kind."""
    return {
        kind: sorted((Counter(now[kind]) - Counter(names)).elements())
        for kind, names in before.items()
    }


def _descriptors() -> list[str]:
    """What the open descriptors of this process refer to."""
    found = []
    for number in os.listdir(DESCRIPTORS):
        with suppress(OSError):  # the one that lists them
            found.append(os.readlink(f"{DESCRIPTORS}/{number}").partition(":[")[0])
    return found


def _processes(ours: psutil.Process, others: list[psutil.Process]) -> list[str]:
    """Children, their children, and the others."""
    names = []
    for process in {*ours.children(recursive=True), *others} - {ours}:
        # The zombie of a child is ours to reap; that of an orphan is init's.
        with suppress(psutil.NoSuchProcess):
            if process.ppid() == ours.pid or lives(process.pid):
                names.append(f"{process.pid} {process.name()}")
    return names


def lives(pid: int) -> bool:
    """Whether the process is there, and not as a zombie."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def unshared_memory() -> int:
    """Bytes that this process would give back if it ended."""
    return int(psutil.Process().memory_full_info().uss)


def _shared_memory(process: psutil.Process) -> list[str]:
    """Blocks that are mapped here, and those of Corral's that have a name."""
    has_maps = hasattr(process, "memory_maps")  # not on macOS
    maps = process.memory_maps(grouped=False) if has_maps else []
    mapped = [part.path for part in maps]
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return [path for path in mapped if "memfd:" in path or "/dev/shm/" in path] + [
        name for name in names if name.startswith("corral")
    ]
