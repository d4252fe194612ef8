"""The exceptions of Stable-Baselines3, which are Corral's as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from corral.api.gymnasium.errors import raise_env_exception
from corral.errors import CorralError, WorkerDied


class WorkerGone(WorkerDied, EOFError, BrokenPipeError, ConnectionResetError):
    """A worker process ended.

    Stable-Baselines3 raises its pipe's errors: EOFError or ConnectionResetError when it
    reads from a process that is gone, BrokenPipeError when it writes to it.
    """


def raise_for(error: CorralError) -> NoReturn:
    """Raise what Stable-Baselines3 would raise; Corral's error is the cause, or itself.

    An env's own exception is raised if it can be rebuilt.
    """
    if isinstance(error, WorkerDied):
        raise WorkerGone(str(error), error.fault) from error.__cause__
    raise_env_exception(error)


@contextmanager
def translated() -> Iterator[None]:
    """Raise Corral's errors as Stable-Baselines3's."""
    try:
        yield
    except CorralError as error:
        raise_for(error)
