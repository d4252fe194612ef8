"""What Stable-Baselines3's users catch when a worker dies, which is ours as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from corral.api.gymnasium.errors import raise_env_exception
from corral.errors import CorralError, WorkerDied


class WorkerGone(WorkerDied, EOFError, BrokenPipeError, ConnectionResetError):
    """A worker process ended.

    Stable-Baselines3 lets its pipe speak: EOFError or ConnectionResetError to who
    reads from a process that is gone, BrokenPipeError to who writes to it.
    """


def raise_for(error: CorralError) -> NoReturn:
    """Raise what Stable-Baselines3's users would get; ours is the cause, or it itself.

    An env's own exception comes out as itself where it can be rebuilt.
    """
    if isinstance(error, WorkerDied):
        raise WorkerGone(str(error), error.fault) from error.__cause__
    raise_env_exception(error)


@contextmanager
def translated() -> Iterator[None]:
    """Our errors, as Stable-Baselines3's users know them."""
    try:
        yield
    except CorralError as error:
        raise_for(error)
