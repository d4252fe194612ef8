"""Is anything left after close(): processes, threads, descriptors, shared memory?"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Subject

CYCLES = 3
"""Envs that are built and closed after the first one, which warms things up."""
MOMENTS = 10
KILLED_EXIT_SECONDS = 2.0
"""Seconds for what was killed to end."""
LEFTOVER_KINDS = ("processes", "threads", "descriptors", "shared memory")


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What more there was after each of the later envs."""

    found: dict[str, list[str]]
    """Kind -> names."""
    pids: tuple[int, ...]


def measure(factory: Callable[[], Any], seed: int) -> Leftovers:
    """Build, play and close, over and over."""
    _cycle(factory, seed)
    before = _census()
    for _ in range(CYCLES):
        _cycle(factory, seed)
    after = _census()
    found = {}
    for kind in LEFTOVER_KINDS:
        more = Counter(after[kind]) - Counter(before[kind])
        # One for each env: what comes and goes by itself does not add up so.
        if more.total() >= CYCLES:
            found[kind] = sorted(more.elements())
    pids = [int(name.split()[0]) for name in found.get("processes", [])]
    return Leftovers(found, tuple(pids))


def _cycle(factory: Callable[[], Any], seed: int) -> None:
    driver = EpisodeDriver(factory, seed)
    for _ in driver.play(MOMENTS):
        pass
    driver.close()
    del driver
    gc.collect()


def _census() -> dict[str, list[str]]:
    return {
        "processes": [f"{pid} {name}" for pid, name in children(os.getpid())],
        "threads": [_named(thread) for thread in threading.enumerate()],
        "descriptors": list(_descriptors()),
        "shared memory": _shared(),
    }


def _named(thread: threading.Thread) -> str:
    """Without the number that makes each one's name another."""
    return thread.name.rstrip("0123456789-") or thread.name


def children(pid: int) -> list[tuple[int, str]]:
    """A process's children and theirs, with their names."""
    parents: dict[int, list[tuple[int, str]]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            head, _, rest = (path / "stat").read_text().rpartition(")")
        except OSError:  # ended meanwhile
            continue
        parent, name = int(rest.split()[1]), head.partition("(")[2]
        parents.setdefault(parent, []).append((int(path.name), name))
    found, waiting = [], [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += [child for child, _ in below]
    return found


def _descriptors() -> Iterator[str]:
    """What each is of, without the numbers that differ from one pipe to the next."""
    folder = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
    for number in os.listdir(folder):
        try:
            name = os.readlink(f"{folder}/{number}")
        except OSError:  # the one that lists them
            continue
        yield name.partition(":[")[0]


def _shared() -> list[str]:
    """Files of ours in /dev/shm."""
    try:
        entries = list(os.scandir("/dev/shm"))
    except OSError:
        return []
    ours = []
    for entry in entries:
        try:
            if entry.stat().st_uid == os.getuid() and _is_mapped(entry.path):
                ours.append(entry.name)
        except OSError:
            continue
    return ours


def _is_mapped(path: str) -> bool:
    """By this process: others leave files there as well."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        return any(path in line for line in lines) or path in set(_descriptors())


def examine(subject: Subject) -> Iterator[Finding]:
    """What adds up, and whether the worker's end takes it along."""
    left: Leftovers = subject.ask(measure, subject.seed)
    if not left.found:
        text = f"nothing was left by {CYCLES} envs after close()"
        yield Finding("leftovers", "ok", text)
        return
    gone = _have_ended(left.pids)
    tried = "when their worker had ended, all of it was gone" if gone else ""
    for kind, names in left.found.items():
        shown = ", ".join(sorted({name.partition(" ")[2] or name for name in names}))
        yield Finding(
            "leftovers",
            "warning",
            f"{CYCLES} envs left {len(names)} {kind} after close(): {shown:.120}",
            "end and close them in close(); until then, build envs once and keep them: "
            "they go when their worker process ends",
            tried,
            data={kind: len(names)},
        )


def _have_ended(pids: tuple[int, ...]) -> bool:
    """Whether these have ended, or do so within a moment."""
    ending = time.monotonic() + KILLED_EXIT_SECONDS
    while any(_lives(pid) for pid in pids):
        if time.monotonic() > ending:
            return False
        time.sleep(0.01)
    return True


def _lives(pid: int) -> bool:
    """Not as a zombie, which waits for whoever has adopted it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


CHECK = Check("leftovers", examine)
