"""The error of a fault: what happened, where, which values, and the next steps."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import corral.errors as errors
from corral.engine.faults.advice import (
    MAKING_POLICY,
    POLICY,
    advice_for,
    in_caller,
    mistake_in,
)
from corral.errors import CorralError, Fault, FaultError

_CAUSES = {
    "SIGKILL": "often the out-of-memory killer",
    "SIGSEGV": "a crash in native code",
    "SIGABRT": "an abort in native code",
    "SIGFPE": "an arithmetic error in native code",
    "SIGILL": "an illegal instruction: often a library built for another CPU",
    "SIGBUS": "a bus error: often full shared memory",
    "SIGTERM": "sent by a scheduler, a time limit or a user",
}
# Of output, or of a stack, that an error shows; the fault has all of it.
MAX_LINES = 40
# Of output beside a traceback, which says more.
MAX_LINES_BESIDE_TRACEBACK = 8
MAX_LINE_CHARACTERS = 200
# Of one action.
MAX_ACTION_CHARACTERS = 80
# Characters that are kept of an exception's text; its head and its tail.
MAX_TEXT_CHARACTERS = 8_000
# The same of a traceback.
MAX_TRACEBACK_CHARACTERS = 24_000


def shortened(text: str, most: int = MAX_TEXT_CHARACTERS) -> str:
    """The text, or its head and tail, and how much is missing between them."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    tail = most // 4
    said = f"\n[... {left_out:,} characters left out ...]\n"
    return text[: most - tail] + said + text[-tail:]


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
    names = ["item", "slot", "worker", "pid", "site", "node"]
    if fault.error_type is not None:
        names.remove("pid")  # its process has not failed
        if in_caller(fault) and (fault.slot, fault.item) != (None, None):
            names.remove("worker")  # which is this process
    known = [name for name in names if getattr(fault, name) is not None]
    return ", ".join(f"{name} {getattr(fault, name)}" for name in known) or "the pool"


def error_for(fault: Fault, syntax: str | None = "python") -> CorralError:
    """The error to raise for a fault, the remote traceback as its cause."""
    message, error = message_for(fault, syntax), fault.exception
    in_item = fault.item is not None and fault.kind == "raised"
    mistake = mistake_in(fault)
    if mistake is not None and not in_item:
        made: CorralError = type(mistake)(message)
        made.fault = fault
    else:
        by_policy = fault.kind == "raised" and fault.command in (POLICY, MAKING_POLICY)
        kind = errors.PolicyError if by_policy else _KINDS[fault.kind]
        kind = errors.ItemError if in_item else kind
        made = kind(message, fault)
    # The live exception where there is one, else the worker's traceback as text. Python
    # would print all of its text, so a shortened one is not the cause.
    text = fault.traceback
    made.__cause__ = errors.RemoteTraceback(text) if text else None
    short = len(fault.error_text or "") <= MAX_TEXT_CHARACTERS
    if error is not None and error.__traceback__ is not None and short:
        made.__cause__ = error
    return made


def one_error_for(faults: Sequence[Fault], chosen: int = 0) -> CorralError:
    """The error of one of the faults, the first as a rule; `.faults` has them all."""
    error = error_for(faults[chosen])
    error.faults = tuple(faults)
    return error


_KINDS: dict[str, type[FaultError]] = {
    "raised": errors.EnvError,
    "start": errors.StartError,
    "died": errors.WorkerDied,
    "hung": errors.WorkerHung,
    "shardmate": errors.WorkerDied,
    "node": errors.NodeLost,
}


# Words --------------------------------------------------------------------------------


def message_for(
    fault: Fault, syntax: str | None = "python", error: str = "error"
) -> str:
    """The text of an error: what happened, where, which values, and the next steps.

    Options are written in the user's syntax; without one there are no next steps. See
    `advice_for`.
    """
    mistake = mistake_in(fault)
    if mistake is not None:
        first = f"{where(fault)}: {shortened(str(mistake))}"
        if not isinstance(mistake, errors.SpaceMismatch):
            return first  # the caller's own mistake, whatever the env was at
    else:
        first = _what_happened(fault)
    advice = () if syntax is None else advice_for(fault, syntax, error)
    steps = [f"  {one}" for one in advice]
    steps = ["Next steps:", *steps] if steps else []
    return "\n".join([first, *_episode(fault), *_worker(fault), *steps])


def _episode(fault: Fault) -> Iterator[str]:
    building = fault.kind == "start" or fault.command in ("start", "construct")
    begun = not building and fault.step is not None
    if fault.seed is not None and not begun:
        yield f"Pool seed: {fault.seed}"
    parts = {
        "no seed" if fault.seed is None else f"seed {fault.seed}": begun,
        f"step {fault.step}": fault.step,
        f"task {fault.task!r:.200}": fault.has_task or fault.task is not None,
        f"options {fault.options!r:.200}": fault.options is not None,
    }
    about = ", ".join(text for text, known in parts.items() if known)
    if about:
        yield f"Episode: {about}"
    if fault.last_actions:
        yield f"Last actions: {', '.join(map(_shown, fault.last_actions))}"


def _shown(action: Any) -> str:
    """An action in a few characters, on one line."""
    text = _text_of(action)
    most = MAX_ACTION_CHARACTERS
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _text_of(action: Any) -> str:
    """An action, or a part of one, without dtypes."""
    match action:
        case np.ndarray():
            text = np.array2string(action, precision=4, threshold=8, separator=", ")
        case np.generic():
            text = repr(action.item())
        case dict():
            parts = (f"{key}: {_text_of(part)}" for key, part in action.items())
            return f"{{{', '.join(parts)}}}"
        case tuple():
            return f"({', '.join(map(_text_of, action))})"
        case _:
            text = repr(action)
    return " ".join(text[:1_000].split())


def _worker(fault: Fault) -> Iterator[str]:
    if fault.restarts:
        many = "It was given up after" if fault.gave_up else "Before that:"
        yield f"{many} {fault.restarts} restart{'s' * (fault.restarts > 1)}"
    if fault.stack.strip():
        yield f"Stack:\n{_tail(_users_part(fault.stack))}"
    if fault.output.strip():
        count = MAX_LINES_BESIDE_TRACEBACK if fault.traceback else MAX_LINES
        yield f"Last output:\n{_tail(_users_part(fault.output), count)}"


def _users_part(text: str) -> str:
    """Text without Corral's own frames of a stack; all of it if there are no others.

    Of a stack as faulthandler writes it, without lines of code. A traceback stays.
    """
    lines = text.rstrip().splitlines()
    kept = [
        line
        for line in lines
        if ", in " in line or not any(own in line for own in _NOT_THE_USERS)
    ]
    return "\n".join(kept if any("File " in line for line in kept) else lines)


# What is in lines that tell nothing of the env or the policy: Corral's frames, and the
# list of all extension modules that are loaded.
_NOT_THE_USERS = (
    *(
        f'File "{Path(__file__).parents[2] / room}'
        for room in ("engine", "rollouts", "tools/doctor")
    ),
    'File "<string>"',
    "Extension modules: ",
)


def _tail(text: str, lines: int = MAX_LINES) -> str:
    last = text.rstrip().splitlines()[-lines:]
    return "\n".join("    " + line[:MAX_LINE_CHARACTERS] for line in last)


def _what_happened(fault: Fault) -> str:
    place, command, beside = where(fault), fault.command, fault.beside
    match fault.kind:
        case "raised":
            return f"{place}: {fault.error_type} in {command}: {fault.error_text}"
        case "start":
            said = f"{fault.error_type}: {fault.error_text}"
            if fault.raised_by is not None:
                return f"{place}: {fault.raised_by} raised {said}"
            return f"{place} could not be built: {said}"
        case "hung":
            what = command if fault.item is None else "the function"
            took = f"{place}: {what} took {fault.error_text or 'too long'}"
            return took + _lost_with(fault)
        case "node":
            return f"{place}: {fault.error_text}"
        case "shardmate":
            by_slot = f"slot {beside} ended its worker"
            why = "its worker ended" if beside is None else by_slot
            return f"{place}: the episode was cut short because {why}"
    return _died(fault)


def _died(fault: Fault) -> str:
    name = fault.signal_name
    cause = f" ({_CAUSES[name]})" if name in _CAUSES else ""
    if name is not None:
        how = f"the process was ended by {name}"
    elif fault.exit_code is not None:
        how = f"the process ended with exit code {fault.exit_code}"
    else:
        how = "the worker thread ended"
    died = f"{where(fault)}: {how} during {fault.command}{cause}"
    return died + _lost_with(fault)


def _lost_with(fault: Fault) -> str:
    """What else was lost with a worker, on a line of its own; "" if nothing."""
    if fault.item is not None or fault.command == "start" or fault.others < 1:
        return ""
    other = "" if fault.slot is None else "other "
    lost = "slots lost their episodes" if fault.others > 1 else "slot lost its episode"
    return f"\nThe worker's {other}{lost}."
