"""A lifeline is a pipe that hangs up when the parent is gone, however it ended.

Only the parent holds the write end, and never writes. The kernel closes it when
the parent ends, even by SIGKILL; a thread in each worker notices and ends the worker:

    pipe hangs up ─► stop word = 1, bell woken ─► grace ─► SIGKILL to the whole group
                                  └─► worker ends by itself ──┘

Why not PR_SET_PDEATHSIG alone: it fires when the *thread* that started the worker
ends, so a pool made in a short-lived thread would lose its workers; and it reaches only
the worker, not the children an environment may have started. It is asked for SIGCONT,
which is harmless at any time: a worker that is stopped could not watch.

Guarantees:
    - A worker, its process group and its `child_processes` outlive their parent by the
      grace at most; on Linux, also a worker that is stopped (SIGSTOP).
    - A forked child of the parent (a DataLoader's worker) does not keep ours alive.
    - The C watcher needs no GIL: an environment stuck in C cannot hold it up.
Assumes:
    - The worker leads its process group; if not, only the worker itself is killed.
    - The Python twin needs the GIL: a worker stuck in C code that holds it stays.
    - Forks of the parent go through os.fork, so that Python's hooks run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
import weakref

from corral.engine.transport import child_processes, doorbell

_PR_SET_PDEATHSIG = 1


class Lifeline:
    """The parent's side: hold it as long as the workers shall live."""

    def __init__(self) -> None:
        """Open a pipe; pass its `read_descriptor` to every worker (pass_fds)."""
        self._write_descriptor: int | None
        self.read_descriptor, self._write_descriptor = os.pipe()
        _held.add(self)

    def close(self) -> None:
        """Let go: workers that still run end within their grace. Idempotent."""
        if self._write_descriptor is not None:
            self._let_go()
            os.close(self.read_descriptor)

    def _let_go(self) -> None:
        descriptor, self._write_descriptor = self._write_descriptor, None
        if descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(descriptor)


_held: weakref.WeakSet[Lifeline] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for lifeline in list(_held):
        lifeline._let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


def watch(
    descriptor: int,
    memory: memoryview,
    stop_offset: int,
    bell_offset: int,
    grace: float = 1.0,
    mark: str = "",
) -> None:
    """End this worker when its lifeline hangs up; returns at once.

    Args:
        descriptor: the inherited read end.
        memory: the block's; kept mapped from now on.
        stop_offset: of the uint32 that becomes 1, for the main thread to see.
        bell_offset: of the bell the main thread waits on; its `wait` then gives False.
        grace: seconds for the main thread to close its envs and exit by itself.
        mark: by which its offspring is known; "" where it has none.
    """
    os.set_inheritable(descriptor, False)
    if sys.platform == "linux":
        # Have the kernel wake us, if we are stopped, when our parent is gone. For the
        # main thread to ask: the request ends with the thread that made it.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGCONT), 0, 0, 0)
    if doorbell.KIND == "futex":
        begins = f"{child_processes.MARK_VARIABLE}={mark}".encode() if mark else b""
        doorbell._doorbell.watch(
            descriptor, memory, stop_offset, bell_offset, grace, begins
        )
        return
    stop = memory[stop_offset : stop_offset + 4].cast("I")
    bell = memory[bell_offset : bell_offset + doorbell.CACHE_LINE_BYTES].cast("I")
    threading.Thread(
        target=_watch_until_hangup,
        args=(descriptor, stop, bell, grace, mark),
        name="corral-lifeline",
        daemon=True,
    ).start()


def end_with_offspring(descriptor: int, mark: str, seconds: float = 0.0) -> None:
    """The last thing a worker does: its children end with it.

    Those of its group are left to the parent, unless that is gone.

    Args:
        descriptor: the inherited read end.
        mark: by which its offspring is known.
        seconds: how long to wait for the hang-up, where another sign of it was seen.
    """
    child_processes.end_own(mark)
    poll = select.poll()
    poll.register(descriptor, 0)
    if poll.poll(seconds * 1000) and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)


def _watch_until_hangup(
    descriptor: int, stop: memoryview, bell: memoryview, grace: float, mark: str
) -> None:
    """The twin of the thread in _doorbell.c."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    stop[0] = 1
    bell[doorbell.STOPPED] = 1  # seen when the sleep of at most 0.25 s ends
    time.sleep(grace)
    if mark:
        child_processes.end_own(mark)
    if os.getpgrp() == os.getpid():  # never a group that another process leads
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
