"""What this process holds, counted before and after: nothing may be left behind."""

from __future__ import annotations

import gc
import os
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from corral.errors import MissingExtra

try:
    import psutil
except ImportError as error:
    raise MissingExtra(
        "counting processes needs psutil: pip install 'corral[bench]'"
    ) from error

DESCRIPTORS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"


@dataclass(frozen=True, slots=True)
class Census:
    """Names by kind: processes, threads, descriptors and shared memory."""

    names: dict[str, list[str]]
    memory: int
    """Bytes; not compared."""

    def more(self, later: Census) -> dict[str, list[str]]:
        """What is there later and was not here, by kind."""
        return {
            kind: sorted((Counter(later.names[kind]) - Counter(names)).elements())
            for kind, names in self.names.items()
        }

    def lost(self, later: Census) -> list[str]:
        """The same as a list of texts."""
        more = self.more(later)
        return [f"{kind}: {name}" for kind, names in more.items() for name in names]


def take_census(mark: str = "") -> Census:
    """Count; `mark` is what our processes have in their environment, as NAME=VALUE."""
    gc.collect()
    process = psutil.Process()
    names = {
        "processes": _processes(process, mark),
        # Without the number that makes each thread's name different.
        "threads": [t.name.rstrip("0123456789-") for t in threading.enumerate()],
        "descriptors": [name.partition(":[")[0] for name in descriptors().values()],
        "shared memory": _shared_memory(process),
    }
    return Census(names, process.memory_info().rss)


def descriptors() -> dict[int, str]:
    """The open descriptors of this process, and what each refers to."""
    found = {}
    for number in os.listdir(DESCRIPTORS):
        with suppress(OSError):  # the one that lists them
            found[int(number)] = os.readlink(f"{DESCRIPTORS}/{number}")
    return found


def _processes(ours: psutil.Process, mark: str) -> list[str]:
    """Children, their children, and every other process that carries the mark."""
    found = set(ours.children(recursive=True))
    if mark:
        found |= {other for other in psutil.process_iter() if _has(other, mark)}
    names = []
    for process in found - {ours}:
        # The zombie of a child is ours to reap; that of an orphan is init's.
        with suppress(psutil.NoSuchProcess):
            if process.ppid() == ours.pid or lives(process.pid):
                names.append(f"{process.pid} {process.name()}")
    return names


def _has(process: psutil.Process, mark: str) -> bool:
    name, _, value = mark.partition("=")
    with suppress(psutil.Error, OSError):
        return process.environ().get(name) == value
    return False


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
