"""The end of a worker process: seen, waited for, and made sure of with its children."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from corral.engine.transport import child_processes

SILENT_EXIT_SECONDS = 2.0
"""Seconds that a worker may do nothing about being asked to end."""
KILLED_EXIT_SECONDS = 2.0
"""The same for the kernel, after SIGKILL: it may hold one that waits for a device."""


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Look without reaping: while its entry stands, its group cannot be another's."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, process.pid, flags) is not None
    except ChildProcessError:  # somebody else waited for it
        return True


def wait_until(process: subprocess.Popen[bytes], deadline: float) -> None:
    """Give a process that long to end by itself."""
    wait_for_all({0: process}, deadline, lambda _: True)


def wait_for_all(
    processes: Mapping[int, subprocess.Popen[bytes]],
    deadline: float,
    answers: Callable[[int], bool],
) -> None:
    """Give processes that long to end by themselves; those that are silent, less.

    Args:
        processes: by worker.
        deadline: by time.monotonic.
        answers: whether a worker is seen to do something about it right now.
    """
    left = dict(processes)
    heard = dict.fromkeys(left, time.monotonic())
    delay = 0.0005
    while left:
        for worker, process in list(left.items()):
            if has_ended(process):
                del left[worker]
        now = time.monotonic()
        if not left or now >= deadline:
            return
        for worker in list(left):
            if answers(worker):
                heard[worker] = now
            elif now - heard[worker] >= SILENT_EXIT_SECONDS:
                kill(left.pop(worker))
        time.sleep(delay)
        delay = min(2 * delay, 0.005)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a worker, its group and its offspring; does not wait."""
    if process.returncode is None:
        children = child_processes.children_of(process.pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        child_processes.end_all(children)


def end(process: subprocess.Popen[bytes]) -> int:
    """Kill what is left of the worker's group, then reap; returns the exit code."""
    kill(process)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(KILLED_EXIT_SECONDS)
    return -signal.SIGKILL  # as it will be
