"""The start of workers: errors of the system, and work that is not broken off half-way.

Python runs signal handlers in the main thread, also after a call: one that
raises (Ctrl-C, an alarm) may run between the start of a process and the line that
stores it. Blocking signals does not help: the kernel delivers them to another thread.
Work in a thread of its own is never interrupted: the main thread waits for it, and
raises afterwards what a handler raised meanwhile.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from corral.engine.faults.report import error_for, shortened
from corral.engine.worker.commands import Job
from corral.engine.worker.letters import describe
from corral.errors import CorralError, Fault


@contextmanager
def start_errors(
    seed: int | None, worker: int | None = None, kinds: type[Exception] = OSError
) -> Iterator[None]:
    """Turn an OSError into a StartError: descriptors, memory, processes, programs.

    Args:
        seed: the pool's, if it means anything to the caller.
        worker: the worker that is started; None for the whole pool.
        kinds: the exceptions that are turned into one, except Corral's own.
    """
    try:
        yield
    except CorralError:
        raise
    except kinds as error:
        fault = Fault(
            kind="start",
            command="start",
            worker=worker,
            seed=seed,
            error_type=type(error).__name__,
            error_text=shortened(str(error)),
            exception=error,
        )
        raise error_for(fault) from error


def construction_fault(error: BaseException, job: Job) -> Fault:
    """A constructor's exception as a fault."""
    slot = getattr(error, "slot", None)
    by = getattr(error, "raised_by", None)
    fault = describe(error, "construct", slot, job.worker, seed=job.seed, raised_by=by)
    return replace(fault, kind="start")


def uninterrupted(work: Callable[[], object]) -> None:
    """Do all of the work, or none of it; then raise what a handler raised meanwhile.

    The work must store its results itself: the caller may not get any further.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or sys.is_finalizing():
        work()  # handlers run in the main thread alone; and there are no more threads
        return
    done, errors = threading.Event(), list[BaseException]()
    # Held by the work from its beginning on, or by a caller that forbids it.
    begins = threading.Lock()

    def run() -> None:
        if begins.acquire(blocking=False):
            try:
                work()
            except BaseException as error:
                errors.append(error)
            finally:
                done.set()

    try:
        try:
            threading.Thread(
                target=run, name="corral-uninterrupted", daemon=True
            ).start()
        except RuntimeError:  # no threads any more: the interpreter is ending
            run()
        done.wait()
    except BaseException:
        # Forbid the work if it has not begun, else wait for it; the first error counts.
        while not begins.acquire(blocking=False) and not done.is_set():
            with suppress(BaseException):
                done.wait()
        raise
    if errors:
        raise errors[0]
