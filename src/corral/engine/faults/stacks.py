"""The Python stacks of a worker that hangs, requested by its parent.

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

from corral.engine.transport.child_processes import stat_of

# A real-time signal, which hardly any library uses; SIGUSR2 where there is none.
STACK_SIGNAL = signal.SIGRTMAX - 5 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
STACK_WAIT_SECONDS = 0.5
PROCESS_STATES = {
    "T": "the process is stopped (SIGSTOP)",
    "D": "the process waits for a device in the kernel",
}


def open_file() -> int:
    """Open the nameless file that `answer_into` writes and `ask_for_stacks` reads."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("corral-stacks", os.MFD_CLOEXEC)
        os.fchmod(descriptor, 0o600)  # as mkstemp's is
        return descriptor
    descriptor, path = tempfile.mkstemp(prefix="corral-")
    os.unlink(path)
    return descriptor


def answer_into(descriptor: int) -> None:
    """In the worker: write stacks to this file whenever the parent asks."""
    os.set_inheritable(descriptor, False)
    faulthandler.register(STACK_SIGNAL, descriptor, all_threads=True)


def ask_for_stacks(pid: int, descriptor: int) -> str:
    """Return the stacks of a process that answers into this file, or why not."""
    (state,) = stat_of(pid)[:1] or [""]
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
    return text or "the process did not answer"


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped (SIGSTOP)."""
    return stat_of(pid)[:1] == ["T"]
