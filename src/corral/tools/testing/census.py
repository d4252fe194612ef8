"""What this process holds, counted before and after: nothing may be left behind."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from corral.errors import MissingExtra

try:
    import psutil
except ImportError as error:
    raise MissingExtra(
        "counting processes needs psutil: pip install 'corral[bench]'"
    ) from error


@dataclass(frozen=True, slots=True)
class Census:
    """Descriptors, threads, processes and shared memory."""

    descriptors: tuple[str, ...]
    threads: tuple[str, ...]
    processes: tuple[str, ...]
    """Children, theirs, and whatever else carries our mark in its environment."""
    blocks: tuple[str, ...]
    """Shared memory of ours: nameless but mapped, and named in /dev/shm."""
    memory: int
    """Bytes; not compared."""

    def lost(self, later: Census) -> list[str]:
        """What is there later and was not here, in words."""
        found = []
        for field in fields(self):
            if field.name == "memory":
                continue
            before, after = getattr(self, field.name), getattr(later, field.name)
            more = list(after)
            for name in before:
                if name in more:
                    more.remove(name)
            found += [f"{field.name}: {name}" for name in more]
        return found


def take_census(mark: str = "") -> Census:
    """Count; `mark` is what our processes have in their environment, as NAME=VALUE."""
    gc.collect()
    process = psutil.Process()
    return Census(
        descriptors=tuple(_descriptors()),
        threads=tuple(sorted(thread.name for thread in threading.enumerate())),
        processes=tuple(_processes(process, mark)),
        blocks=tuple(_blocks(process)),
        memory=process.memory_info().rss,
    )


def _descriptors() -> list[str]:
    """What each is of, without the numbers that differ from one pipe to the next."""
    names = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists them
            names.append(os.readlink(f"/proc/self/fd/{number}").partition(":[")[0])
    return sorted(names)


def _processes(ours: psutil.Process, mark: str) -> list[str]:
    found = set(ours.children(recursive=True))
    if mark:
        found |= {other for other in psutil.process_iter() if _has(other, mark)}
    return sorted(str(process.pid) for process in found - {ours} if _lives(process))


def _has(process: psutil.Process, mark: str) -> bool:
    with suppress(OSError):
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        return mark.encode() in environment.split(b"\0")
    return False


def _lives(process: psutil.Process) -> bool:
    """Not a zombie: whose parent died waits for init, who may take its time."""
    with suppress(psutil.NoSuchProcess):
        adopted = process.ppid() != os.getpid()
        return not (adopted and process.status() == psutil.STATUS_ZOMBIE)
    return False


def _blocks(process: psutil.Process) -> list[str]:
    mapped = [part.path for part in process.memory_maps(grouped=False)]
    names = [name for name in os.listdir("/dev/shm") if name.startswith("corral")]
    return sorted([path for path in mapped if "memfd:corral" in path] + names)
