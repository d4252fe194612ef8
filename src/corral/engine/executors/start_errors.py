"""What fails while workers are started, as StartError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from corral.engine.faults.report import error_for, shortened
from corral.engine.worker.commands import Job
from corral.engine.worker.letters import describe
from corral.errors import CorralError, Fault


@contextmanager
def start_errors(
    seed: int | None,
    worker: int | None = None,
    kinds: type[Exception] = OSError,
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
    fault = describe(error, "construct", slot, job.worker, seed=job.seed)
    return replace(fault, kind="start")
