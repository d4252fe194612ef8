"""Work that no signal handler can break off half-way.

Python runs signal handlers in the main thread, between any two instructions: one that
raises (Ctrl-C, an alarm) may come between a process that was started and the line that
remembers it. Blocking signals does not help: the kernel gives them to another thread
of ours. Work that is done in a thread of its own is never interrupted: the main thread
waits for it, and what a handler raises meanwhile comes when it is done.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable


def uninterrupted(work: Callable[[], object]) -> None:
    """Do all of the work, or none of it; then raise what a handler raised meanwhile.

    What comes of it has to be kept by the work itself: the caller may get no further.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or sys.is_finalizing():
        work()  # handlers run in the main thread alone; and there are no more threads
        return
    thread_work = _ThreadWork(work)
    try:
        thread_work.start()
        thread_work.wait()
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
        self._done = threading.Event()
        self._begins = threading.Lock()
        """Held by the work from its beginning on; or by whoever forbids it."""

    def start(self) -> None:
        thread = threading.Thread(
            target=self._run, name="corral-uninterrupted", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no threads any more: the interpreter is ending
            self._run()

    def wait(self) -> None:
        self._done.wait()

    def forbid_or_finish(self) -> None:
        """Forbid the work if it has not begun; else see it through."""
        if self._begins.acquire(blocking=False):
            return
        while not self._done.is_set():
            try:
                self._done.wait()
            except (
                BaseException
            ):  # one more signal: the first one's error is on its way
                continue

    def _run(self) -> None:
        if not self._begins.acquire(blocking=False):
            return
        try:
            self._work()
        except BaseException as error:
            self.error = error
        finally:
            self._done.set()
