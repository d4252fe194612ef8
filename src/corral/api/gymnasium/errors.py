"""What Gymnasium's users catch: its own exception types, which are ours as well."""

from __future__ import annotations

import multiprocessing
from typing import NoReturn

from gymnasium.error import (
    AlreadyPendingCallError,
    ClosedEnvironmentError,
    NoAsyncCallError,
)

from corral.errors import (
    ClosedError,
    CorralError,
    EnvError,
    OrderError,
    SpaceMismatch,
    StartError,
)


class EnvsClosed(ClosedError, ClosedEnvironmentError):
    """Used after close()."""


class CallPending(OrderError, AlreadyPendingCallError):
    """Another call is under way."""

    def __init__(self, message: str, name: str) -> None:
        AlreadyPendingCallError.__init__(self, message, name)


class NothingPending(OrderError, NoAsyncCallError):
    """Nothing was asked that could be waited for."""

    def __init__(self, message: str, name: str) -> None:
        NoAsyncCallError.__init__(self, message, name)


class WaitTimeout(multiprocessing.TimeoutError, TimeoutError):
    """The results were not there in time."""


class ActionTypeError(SpaceMismatch, TypeError):
    """One action was given where there are many slots."""


def raise_env_exception(error: CorralError) -> NoReturn:
    """Raise the env's own exception with ours as its cause; ours if it has none."""
    own = error.fault.exception if isinstance(error, (EnvError, StartError)) else None
    if own is None:
        raise error from error.__cause__
    # Under serial the env's exception is our cause already: not in a circle.
    if error.__cause__ is own:
        error.__cause__ = None
    raise own from error


def timeout_error(method: str, timeout: float | None) -> WaitTimeout:
    """The error of a wait that was given so many seconds."""
    return WaitTimeout(
        f"The call to `{method}` has timed out after {timeout} second(s)."
    )
