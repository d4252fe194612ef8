"""Work that no signal handler can break off half-way.

Python runs signal handlers in the main thread, between any two instructions: one that
raises (Ctrl-C, an alarm) may run between the start of a process and the line that
stores it. Blocking signals does not help: the kernel delivers them to another thread.
Work in a thread of its own is never interrupted: the main thread waits for it, and
raises afterwards what a handler raised meanwhile.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


def uninterrupted(work: Callable[[], object]) -> None:
    """Do all of the work, or none of it; then raise what a handler raised meanwhile.

    The work must store its results itself: the caller may not get any further.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or sys.is_finalizing():
        work()  # handlers run in the main thread alone; and there are no more threads
        return
    thread_work = _ThreadWork(work)
    try:
        thread_work.start()
        thread_work.done.wait()
    except BaseException:
        thread_work.forbid_or_finish()
        raise
    if thread_work.error is not None:
        raise thread_work.error


class _ThreadWork:
    """One piece of work, in a thread."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self.done = threading.Event()
        self._begins = threading.Lock()
        """Held by the work from its beginning on, or by `forbid_or_finish`."""

    def start(self) -> None:
        thread = threading.Thread(
            target=self._run, name="corral-uninterrupted", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no threads any more: the interpreter is ending
            self._run()

    def forbid_or_finish(self) -> None:
        """Forbid the work if it has not begun; otherwise wait for its end."""
        if self._begins.acquire(blocking=False):
            return
        while not self.done.is_set():
            try:
                self.done.wait()
            except BaseException:  # one more signal: the first error is raised
                continue

    def _run(self) -> None:
        if not self._begins.acquire(blocking=False):
            return
        try:
            self._work()
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()
