"""The end of a worker process: seen, waited for, and made sure of with its group."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress


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
    delay = 0.0005
    while not has_ended(process) and time.monotonic() < deadline:
        time.sleep(delay)
        delay = min(2 * delay, 0.02)


def end(process: subprocess.Popen[bytes]) -> int:
    """Kill what is left of the worker's group, then reap; returns the exit code."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode
