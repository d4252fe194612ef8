"""The next steps after a fault, in the syntax that the user writes options in.

In `corral train` options are settings, and the run itself says how to continue.
"""

from __future__ import annotations

import errno

from corral.engine.faults.option_syntax import PYTHON_SYNTAX, OptionSyntax
from corral.errors import Fault, UsageError

_NATIVE = "debug the native code: run the program with {serial} under gdb"
_SIGNALS = {
    "SIGKILL": (
        "if memory ran out (see the kernel's log): fewer workers, or {alone} with "
        "{memory_limit}"
    ),
    "SIGSEGV": _NATIVE,
    "SIGABRT": _NATIVE,
    "SIGFPE": _NATIVE,
    "SIGILL": "install the library that crashed for this CPU, or build it here",
    "SIGBUS": (
        "if memory ran out: fewer or smaller slots, or more memory for the container "
        "(--shm-size, if the env uses /dev/shm)"
    ),
}
_ERRNOS = {
    errno.EMFILE: (
        "this process may open no more files: raise the limit (`ulimit -n`), or use "
        "fewer workers"
    ),
    errno.ENFILE: "the machine has too many open files: use fewer workers",
    errno.ENOSPC: (
        "shared memory is full: give the container more (--shm-size, or its memory "
        "limit), or use fewer or smaller slots"
    ),
    errno.ENOMEM: "memory is full: use fewer or smaller slots, or fewer workers",
    errno.EFBIG: (
        "this process may not create memory or files of that size: raise the limit "
        "(`ulimit -f`), or use fewer or smaller slots"
    ),
    errno.EAGAIN: (
        "this user may start no more processes: raise the limit (`ulimit -u`, or the "
        "container's pids limit), or use fewer workers"
    ),
}
_RESOURCE_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""These mean the same when an env's own constructor meets them."""
_UNSTARTED = (
    "Corral starts workers with sys.executable; in an embedded interpreter, set it: "
    "multiprocessing.set_executable(path)"
)
_BY_TRANSFER = {
    "sending an info home": ["let infos hold plain data: numbers, arrays, text"],
    "sending a result home": [
        "return plain data, or use the value beside the env: pool.apply(function)"
    ],
    "opening what it sent home": [
        "return plain data, or make the module importable in this process too: the "
        "value can be unpickled in the worker only"
    ],
}
_TIMEOUTS = {
    "construct": "start_timeout",
    "reset": "reset_timeout",
    "map": "item_timeout",
}
_STARTING = ("start", "construct")


def advice_for(fault: Fault, syntax: OptionSyntax = PYTHON_SYNTAX) -> list[str]:
    """Return the next steps, a line each; none where the error itself says so."""
    lines = [*_shared_process(fault, syntax), *_first(fault, syntax)]
    if syntax.in_python:
        lines = [*_closing(fault), *lines, *_continuing(fault), *_replay(fault)]
    return lines


def _closing(fault: Fault) -> list[str]:
    """What the pool needs; under `corral train` the pool is the run's."""
    broken = fault.kind in ("died", "hung") and fault.item is None
    return ["close the pool"] if broken and fault.command not in _STARTING else []


def _continuing(fault: Fault) -> list[str]:
    """How to continue after such faults, where a restart helps."""
    if fault.item is not None:
        return [] if fault.gave_up else ['run such items again: on_fault="restart"']
    if fault.gave_up:
        return ["allow more restarts: max_restarts=, restarts_per_minute="]
    if not helped_by_restarts(fault):
        return []
    option = "on_timeout" if fault.kind == "hung" else "on_fault"
    return [f'continue after such errors: {option}="restart"']


def helped_by_restarts(fault: Fault) -> bool:
    """Whether another env, or another worker, in its place may do better."""
    if isinstance(fault.exception, UsageError):
        return False  # it would return the same: the env has to be changed
    kinds = ("raised", "died", "hung")
    return fault.kind in kinds and fault.command in ("step", "reset")


def _shared_process(fault: Fault, syntax: OptionSyntax) -> list[str]:
    """The hint that other envs in its process may be why it failed."""
    if not fault.company:
        return []
    others = f"{fault.company} other env{'s' * (fault.company > 1)}"
    alone = syntax.option("isolation", "slot")
    return [f"try the env alone, it shared its process with {others}: {alone}"]


def _first(fault: Fault, syntax: OptionSyntax) -> list[str]:
    if isinstance(fault.exception, UsageError):
        return []  # it says so itself
    if fault.command in _BY_TRANSFER:
        lines = _BY_TRANSFER[fault.command]
        if fault.command == "sending an info home" and syntax.in_python:
            return [*lines, "or leave that key out: infos=[...]"]
        return lines
    line = _BY_KIND[fault.kind](fault, syntax).format(
        alone=syntax.option("isolation", "slot"),
        serial=syntax.option("backend", "serial"),
        memory_limit=syntax.option("memory_limit"),
    )
    return [line] if line else []


def _replay(fault: Fault) -> list[str]:
    episode = fault.episode
    if episode is None:
        return []
    if episode.missing:
        return [f"(this episode cannot be replayed: {episode.missing})"]
    return ["reproduce this episode: fault.save(path), then corral.replay(path)"]


def _raised(fault: Fault, syntax: OptionSyntax) -> str:
    if fault.item is not None:
        return "debug it: call the function with that item yourself"
    return _start(fault, syntax) if fault.command == "construct" else ""


def _start(fault: Fault, syntax: OptionSyntax) -> str:
    error = fault.exception
    number = error.errno if isinstance(error, OSError) else None
    ours = fault.command == "start"
    if number in _ERRNOS and (ours or number in _RESOURCE_ERRNOS):
        return _ERRNOS[number]
    if ours and number is not None:
        return _UNSTARTED
    return "debug it in your own process: {serial}"


def _died(fault: Fault, syntax: OptionSyntax) -> str:
    if fault.signal_name is not None:
        return _SIGNALS.get(fault.signal_name, "")
    if fault.exit_code == 1 and "Traceback" in fault.output:
        return "see the traceback in the last output: Python itself ended"
    if fault.exit_code is not None:
        return "look for os._exit, or for a library that calls C's exit()"
    return "report a bug in Corral: its traceback is on stderr"


def _hung(fault: Fault, syntax: OptionSyntax) -> str:
    longer = None if syntax.in_python or not fault.limit else 10 * fault.limit
    option = syntax.option(timeout_of(fault), longer)
    return f"if it is only slow, allow more time: {option}"


def timeout_of(fault: Fault) -> str:
    """The option that limits how long it may take."""
    return _TIMEOUTS.get(fault.command, "step_timeout")


def _shardmate(fault: Fault, syntax: OptionSyntax) -> str:
    return "if it happens often, give each slot its own worker: {alone}"


_BY_KIND = {
    "raised": _raised,
    "start": _start,
    "died": _died,
    "hung": _hung,
    "shardmate": _shardmate,
}
