"""Processes that envs start end with their worker.

Those in the worker's process group are ended with the group. Those that have left it (a
daemon, `Popen(start_new_session=True)`) are found in two ways:

    tree   the worker's children, theirs, and so on, while the worker lives
    mark   every worker has an environment variable of its own, which its children
           inherit; /proc shows it also of those whose parents are gone

Guarantees (Linux):
    - Only processes that descend from the worker are ended: no name is guessed, and a
      process id that was given away again is not taken for the one that was looked at.
    - It costs nothing while envs run: a worker looks when it ends, and one that never
      had a child does not look at other processes at all.
Assumes:
    - /proc is there, and pidfd_open (Linux 5.3). Elsewhere the process group is all
      that is ended.
    - A process that has left the group and was given an environment of its own (`env=`)
      is found by the tree alone: not after its parent has ended, nor after the worker
      was killed from outside.
"""

from __future__ import annotations

import glob
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

MARK_VARIABLE = "CORRAL_WORKER"
# Seconds in which processes that fork quickly are looked for again and again.
KILL_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class HeldProcess:
    """A process that is held by a descriptor, so that its number stays its own."""

    pid: int
    _descriptor: int

    def kill(self) -> None:
        """Kill it, if it has not ended; and let go."""
        with suppress(OSError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        self.let_go()

    def let_go(self) -> None:
        os.close(self._descriptor)


def children_of(pid: int) -> list[HeldProcess]:
    """All that descends from a process that lives."""
    found: list[HeldProcess] = []
    parents = [pid]
    for parent in parents:
        for child in listed_children(parent):
            held = _hold(child, partial(_is_child_of, parent))
            if held is not None:
                found.append(held)
                parents.append(child)
    return found


def end_own(mark: str) -> None:
    """Kill what descends from this process, whose mark is this, and left its group."""
    group = os.getpgrp()
    children = children_of(os.getpid())
    for held in children:
        if _group_of(held.pid) == group:
            held.let_go()
        else:
            held.kill()
    if mark and (children or _had_children()):
        end_marked(mark, but=group)


def _had_children() -> bool:
    """Whether this process has ever waited for a child, or cannot know."""
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        return True  # the kernel waited for them, and did not count
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 0


def end_marked(mark: str, but: int | None = None) -> None:
    """Kill every process whose mark begins like this, but those of a group.

    One that forks quickly may have started others by then: look until none is left.
    """
    begins = f"{MARK_VARIABLE}={mark}".encode()
    deadline = time.monotonic() + KILL_AGAIN_SECONDS
    while True:
        found = list(_marked(begins, but))
        for held in found:
            held.kill()
        if not found or time.monotonic() > deadline:
            return
        time.sleep(0.001)


def _marked(begins: bytes, but: int | None) -> Iterator[HeldProcess]:
    def is_meant(pid: int) -> bool:
        return _has_mark(pid, begins) and _group_of(pid) != but

    for pid in map(int, glob.glob("[0-9]*", root_dir="/proc")):
        held = _hold(pid, is_meant) if pid != os.getpid() and is_meant(pid) else None
        if held is not None:
            yield held


def _hold(pid: int, is_meant: Callable[[int], bool]) -> HeldProcess | None:
    """The process, if it is still the one that is meant once it is held."""
    try:
        held = HeldProcess(pid, os.pidfd_open(pid))
    except (AttributeError, OSError):  # no such call here, or it is gone
        return None
    if is_meant(pid):
        return held
    held.let_go()
    return None


def _is_child_of(parent: int, pid: int) -> bool:
    return stat_of(pid)[1:2] == [str(parent)]


def _has_mark(pid: int, begins: bytes) -> bool:
    """Whether the process was started with the mark; one that has ended shows none."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"\0" + begins in b"\0" + file.read()
    except OSError:  # gone, or another user's
        return False


def listed_children(pid: int | str) -> list[int]:
    """The children of a process ("self" for this one), as far as /proc tells."""
    found: list[int] = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with suppress(OSError):
            found += map(int, Path(path).read_text().split())
    return found


def stat_of(pid: int) -> list[str]:
    """State, parent and more of a process: /proc/PID/stat after the name."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def _group_of(pid: int) -> int | None:
    with suppress(OSError):
        return os.getpgid(pid)
    return None
