"""Where a process hangs, asked of it from outside.

A worker registers `faulthandler` for one signal, which writes its threads' Python
stacks into a nameless file that the parent holds too. The handler runs in C, so it
answers also while an env holds the GIL.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path

# A real-time signal, which hardly any library uses; SIGUSR2 where there is none.
STACK_SIGNAL = signal.SIGRTMAX - 5 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
STACK_WAIT_SECONDS = 0.5
PROCESS_STATES = {
    "T": "the process is stopped (SIGSTOP)",
    "D": "the process waits for a device in the kernel",
}


def open_file() -> int:
    """The nameless file, for `answer_into` and `ask_for_stacks`."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("corral-stacks", os.MFD_CLOEXEC)
        os.fchmod(descriptor, 0o600)  # as mkstemp's is
        return descriptor
    descriptor, path = tempfile.mkstemp(prefix="corral-")
    os.unlink(path)
    return descriptor


def answer_into(descriptor: int) -> None:
    """In the worker: write stacks there whenever we are asked."""
    os.set_inheritable(descriptor, False)
    faulthandler.register(STACK_SIGNAL, descriptor, all_threads=True)


def ask_for_stacks(pid: int, descriptor: int) -> str:
    """The stacks of a process that answers into this file; says why if it cannot."""
    state = _state(pid)
    if state in PROCESS_STATES:
        return PROCESS_STATES[state]
    before = os.fstat(descriptor).st_size
    try:
        os.kill(pid, STACK_SIGNAL)
    except ProcessLookupError:
        return "the process is gone"
    deadline = time.monotonic() + STACK_WAIT_SECONDS
    size = before
    while time.monotonic() < deadline:
        time.sleep(0.005)
        grown = os.fstat(descriptor).st_size
        if grown == size > before:
            break  # written, and no longer growing
        size = grown
    text = os.pread(descriptor, size - before, before).decode(errors="replace")
    return text or "the process did not say"


def is_stopped(pid: int) -> bool:
    """Whether somebody has stopped the process (SIGSTOP)."""
    return _state(pid) == "T"


def _state(pid: int) -> str:
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
