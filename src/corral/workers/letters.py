"""What travels through the mailbox: letters about a slot, and replies to a question."""

from __future__ import annotations

import pickle
import sys
import traceback
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle

from corral.errors import CorralError, Fault


@dataclass(slots=True)
class Letter:
    """What a slot's outcome holds beyond its fields in the block."""

    slot: int
    info: dict[str, Any] | None = None
    final_info: dict[str, Any] | None = None
    obs: list[Any] | None = None
    final_obs: list[Any] | None = None
    fault: Fault | None = None


@dataclass(slots=True)
class Reply:
    """The answer to a question: one value per slot asked, or one for the worker."""

    values: list[Any]
    faults: list[Fault]


def describe(
    error: BaseException,
    command: str,
    slot: int | None,
    worker: int,
    **details: Any,
) -> Fault:
    """An exception as a fault, its traceback cut to what the user wrote."""
    return Fault(
        kind="raised",
        command=command,
        slot=slot,
        worker=worker,
        error_type=type(error).__qualname__,
        error_text=str(error),
        traceback=_readable(error),
        exception=error,
        **details,
    )


def _readable(error: BaseException) -> str:
    trace = error.__traceback__
    # The frames on top are ours and say nothing about the env.
    while trace is not None and trace.tb_next is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if not module.startswith("corral.workers") or isinstance(error, CorralError):
            break
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def survives(error: BaseException) -> bool:
    """Whether an exception comes out of pickling as what it was."""
    try:
        copy = pickle.loads(cloudpickle.dumps(error))
    except Exception:
        return False
    return type(copy) is type(error) or (
        # A class of `__main__` is rebuilt by value here, but found again by the parent.
        type(copy).__qualname__ == type(error).__qualname__
        and sys.modules.get(type(error).__module__) is not None
    )


def for_travel(fault: Fault) -> Fault:
    """The fault without an exception that would not survive the journey."""
    if fault.exception is None or survives(fault.exception):
        return fault
    return replace(fault, exception=None)
