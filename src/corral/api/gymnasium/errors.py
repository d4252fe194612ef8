"""The exceptions of Gymnasium and Stable-Baselines3, which are Corral's as well."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

import gymnasium
from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
)

from corral.engine.faults.report import message_for, one_error_for
from corral.errors import (
    ClosedError,
    CorralError,
    EnvError,
    Fault,
    FaultError,
    OrderError,
    SpaceMismatch,
    StartError,
    WorkerDied,
)


class EnvsClosed(ClosedError, ClosedEnvironmentError):
    """Used after close()."""


class CallPending(OrderError, AlreadyPendingCallError):
    """Another call is pending."""

    def __init__(self, message: str, name: str) -> None:
        AlreadyPendingCallError.__init__(self, message, name)


class NothingPending(OrderError, NoAsyncCallError):
    """A wait without a pending call."""

    def __init__(self, message: str, name: str) -> None:
        NoAsyncCallError.__init__(self, message, name)


class WaitTimeout(multiprocessing.TimeoutError, TimeoutError):
    """The results did not arrive in time."""


class ActionTypeError(SpaceMismatch, TypeError):
    """One action was given for many slots."""


def raise_env_exception(error: CorralError, syntax: str = "python") -> NoReturn:
    """Raise the env's own exception with ours as its cause; ours if it has none.

    With next steps in the syntax of the API, as `advice_for` knows them.
    """
    own = error.fault.exception if isinstance(error, (EnvError, StartError)) else None
    if own is None or error.fault is None:
        raise _told(error, syntax) from error.__cause__
    # Under serial the env's exception is our cause already: avoid a circle.
    if error.__cause__ is own:
        error.__cause__ = None
    raise own from _told(error, syntax, "error.__cause__")


def _told(error: CorralError, syntax: str, name: str = "error") -> CorralError:
    """The error, with the next steps of an API."""
    if isinstance(error, FaultError):
        error.args = (message_for(error.fault, syntax, name),)
    return error


def raise_last_env_exception(error: CorralError, syntax: str) -> NoReturn:
    """The same; of several envs, Gymnasium raises the exception of the last."""
    if len(error.faults) > 1 and isinstance(error, EnvError):
        step = error.step
        error = one_error_for(error.faults, -1)
        error.step = step
    raise_env_exception(error, syntax)


def log_faults(faults: Sequence[Fault]) -> None:
    """Log every error, as Gymnasium does before it raises the last one."""
    # Where warnings are errors, the env's own exception is still the one to raise.
    with suppress(Warning):
        for fault in faults:
            gymnasium.logger.error(
                "Received the following error from Worker-%s - Shutting it down",
                fault.slot,
            )
            gymnasium.logger.error("%s", fault.traceback)
        gymnasium.logger.error("Raising the last exception back to the main process.")


# Stable-Baselines3 --------------------------------------------------------------------


class WorkerGone(WorkerDied, EOFError, BrokenPipeError, ConnectionResetError):
    """A worker process ended.

    Stable-Baselines3 raises its pipe's errors: EOFError or ConnectionResetError when it
    reads from a process that is gone, BrokenPipeError when it writes to it.
    """


def raise_for(error: CorralError, syntax: str = "python") -> NoReturn:
    """Raise what Stable-Baselines3 would raise; Corral's error is the cause, or itself.

    An env's own exception is raised if it can be rebuilt.
    """
    if isinstance(error, WorkerDied):
        said = message_for(error.fault, syntax)
        raise WorkerGone(said, error.fault) from error.__cause__
    raise_env_exception(error, syntax)


@contextmanager
def translated(syntax: str = "python") -> Iterator[None]:
    """Raise Corral's errors as Stable-Baselines3's."""
    try:
        yield
    except CorralError as error:
        raise_for(error, syntax)
