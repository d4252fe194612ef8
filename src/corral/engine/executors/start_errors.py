"""Refusals of the operating system at the start, as StartError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corral.engine.faults.report import error_for
from corral.errors import Fault


@contextmanager
def start_errors(seed: int | None, worker: int | None = None) -> Iterator[None]:
    """Turn an OSError into a StartError: descriptors, memory, processes, programs.

    Args:
        seed: the pool's, if it means anything to the caller.
        worker: the worker that is started; None for the whole pool.
    """
    try:
        yield
    except OSError as error:
        fault = Fault(
            kind="start",
            command="start",
            worker=worker,
            seed=seed,
            error_type=type(error).__name__,
            error_text=str(error),
            exception=error,
        )
        raise error_for(fault) from error
