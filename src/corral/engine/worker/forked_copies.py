"""A forked copy of a worker ends as soon as the env's own code returns.

An env may fork: a helper process, a program whose `exec` fails, `multiprocessing`. The
child is a copy of the whole worker. While it runs the env's code it is left alone; if
it came back from `step`, it would continue as a second worker on the same block, bells
and mailbox. So wherever the user's code returns or raises, the worker checks whether
this is still the process that made the call:

    env.step ── fork ──┬── worker: returns ──► recorded, published
                       └── copy:   returns ──► one line on stderr, os._exit

Guarantees:
    - A copy writes nothing to the block, rings no bell, posts no letter, closes no env
      and runs no exit handler: it ends with `os._exit`.
    - With the C part, forks of C code are seen as well (`pthread_atfork`), and a look
      costs no system call. Its Python twin asks for the process id.
Assumes:
    - A process made by the bare system call `clone`, past libc's `fork`, is not seen by
      the C part.
    - Under `serial` the env runs in the user's own program: a copy continues as a
      copy of that program, as it would in a loop without Corral.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# The exit code of a copy that came back; that of a SystemExit is its own.
COPY_EXIT_CODE = 1

# Called where the user's code returned, with the exception if it raised.
Guard = Callable[..., None]


# The C part of the worker; None where its Python twins are used.
C_PART: Any = None
if os.environ.get("CORRAL_PURE_PYTHON") != "1":
    with suppress(ImportError):
        C_PART = importlib.import_module("corral.engine.worker._record")
# Its result differs in every forked copy.
count_forks: Callable[[], int] = getattr(C_PART, "forks", os.getpid)


def no_guard(error: BaseException | None = None) -> None:
    """For envs in the caller's own process: its forked copies continue."""


def guard_of(worker: int) -> Guard:
    """The guard of a worker in this process; it returns here, and in no copy of it."""
    here, counted = count_forks(), count_forks

    def end_if_copied(error: BaseException | None = None) -> None:
        if counted() != here:
            _end(worker, error)

    return end_if_copied


class guarded:
    """Around the user's code.

    Not a generator: contextlib writes to the exception, and some take no attributes.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._guard(error)


def counted_forks() -> list[None]:
    """A list that grows with every fork of this process from now on; not of C code."""
    forks: list[None] = []
    if hasattr(os, "register_at_fork"):  # where there is fork
        os.register_at_fork(after_in_parent=lambda: forks.append(None))
    return forks


def _end(worker: int, error: BaseException | None) -> None:
    """End this copy, with a line on stderr."""
    code: Any = COPY_EXIT_CODE
    try:
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            code = error.code
        raised = f"raised {type(error).__name__}: {error!s:.500}"
        how = "returned" if error is None else raised
        text = (
            f"corral: process {os.getpid()}, forked by an environment or function in "
            f"worker {worker}, {how} where a child process must end. It was ended. "
            "Let a forked child end with os._exit() or exec.\n"
        )
        os.write(2, text.encode(errors="replace"))
    finally:  # whatever the text of the user's exception does
        os._exit(code & 0xFF)
