"""A fault becomes an error that answers: what, where, which value, what now."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from corral.errors import (
    CorralError,
    EnvError,
    Fault,
    FaultError,
    ItemError,
    RemoteTraceback,
    StartError,
    UsageError,
    WorkerDied,
    WorkerHung,
)

_CAUSES = {
    "SIGKILL": "killed, often by the out-of-memory killer",
    "SIGSEGV": "a crash in native code",
    "SIGABRT": "an abort in native code",
    "SIGFPE": "a floating-point or integer-division crash in native code",
    "SIGILL": "an illegal instruction, often a library built for another CPU",
    "SIGBUS": "a bus error, often shared memory that ran full",
    "SIGTERM": "terminated from outside",
}


def signal_name(exit_code: int | None) -> str | None:
    """The signal behind a negative exit code."""
    if exit_code is None or exit_code >= 0:
        return None
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def where(fault: Fault) -> str:
    """The place of a fault, in the project's words."""
    parts = []
    if fault.item is not None:
        parts.append(f"item {fault.item}")
    if fault.slot is not None:
        parts.append(f"slot {fault.slot}")
    if fault.worker is not None:
        parts.append(f"worker {fault.worker}")
    if fault.pid is not None:
        parts.append(f"pid {fault.pid}")
    return ", ".join(parts) or "the pool"


def error_for(fault: Fault) -> CorralError:
    """The error to raise for a fault, the remote traceback as its cause."""
    if fault.item is not None and fault.kind == "raised":
        error: CorralError = ItemError(_message(fault), fault)
    elif isinstance(fault.exception, UsageError):
        error = type(fault.exception)(f"{where(fault)}: {fault.exception}")
    else:
        error = _KINDS[fault.kind](_message(fault), fault)
    error.__cause__ = _cause(fault)
    return error


def one_error_for(faults: Sequence[Fault]) -> CorralError:
    """The error of the first fault; `.faults` has them all."""
    error = error_for(faults[0])
    error.faults = tuple(faults)  # type: ignore[attr-defined]
    return error


_KINDS: dict[str, type[FaultError]] = {
    "raised": EnvError,
    "start": StartError,
    "died": WorkerDied,
    "hung": WorkerHung,
}


def _message(fault: Fault) -> str:
    lines = [_MESSAGES[fault.kind](fault)]
    if fault.seed is not None:
        lines.append(f"The episode's seed is {fault.seed}.")
    if fault.task is not None:
        lines.append(f"Its task is {fault.task!r:.200}.")
    if fault.last_actions:
        shown = ", ".join(f"{action!r:.60}" for action in fault.last_actions)
        lines.append(f"The last actions were: {shown}.")
    if fault.output.strip():
        lines.append(f"The worker's last output:\n{_tail(fault.output)}")
    return "\n".join(lines)


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join("    " + line for line in text.rstrip().splitlines()[-lines:])


def _raised(fault: Fault) -> str:
    return f"{where(fault)}: {fault.error_type} in {fault.command}: {fault.error_text}"


def _start(fault: Fault) -> str:
    return f"{where(fault)} could not be built: {fault.error_type}: {fault.error_text}"


def _died(fault: Fault) -> str:
    name = fault.signal_name
    if name is not None:
        how = f"the process ended by {name} ({_CAUSES.get(name, 'a signal')})"
    elif fault.exit_code is not None:
        how = f"the process ended with exit code {fault.exit_code} (os._exit in it?)"
    else:
        how = "the thread ended (KeyboardInterrupt raised in it?)"
    died = f"{where(fault)}: {how} during {fault.command}."
    if fault.item is not None:
        return died
    return f"{died} Its other slots are lost with it; close the pool."


def _hung(fault: Fault) -> str:
    return f"{where(fault)}: no answer in time to {fault.command}."


_MESSAGES = {"raised": _raised, "start": _start, "died": _died, "hung": _hung}


def _cause(fault: Fault) -> BaseException | None:
    """The live exception where there is one, else the worker's traceback as text."""
    if fault.exception is not None and fault.exception.__traceback__ is not None:
        return fault.exception
    return RemoteTraceback(fault.traceback) if fault.traceback else None
