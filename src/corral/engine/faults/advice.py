"""What to do about a fault: a line for each thing to do, in the user's syntax.

In `corral train` options are written as settings, and the run says how to go on.
"""

from __future__ import annotations

import errno

from corral.engine.faults.option_syntax import PYTHON_SYNTAX, OptionSyntax
from corral.errors import Fault, UsageError

_NATIVE = "To debug it: run the program with {serial} under gdb"
_SIGNALS = {
    "SIGKILL": (
        "If memory ran out (see the kernel's log): fewer workers, or {alone} with "
        "{memory_limit}"
    ),
    "SIGSEGV": _NATIVE,
    "SIGABRT": _NATIVE,
    "SIGFPE": _NATIVE,
    "SIGILL": "Install the library that crashed for this CPU, or build it here",
    "SIGBUS": (
        "If memory ran out: fewer or smaller slots, or more memory for the container "
        "(--shm-size, if the env uses /dev/shm)"
    ),
}
_ERRNOS = {
    errno.EMFILE: (
        "This process may open no more files: raise the limit (`ulimit -n`), or use "
        "fewer workers"
    ),
    errno.ENFILE: "The machine has too many open files: use fewer workers",
    errno.ENOSPC: (
        "Shared memory is full: give the container more (--shm-size, or its memory "
        "limit), or use fewer or smaller slots"
    ),
    errno.ENOMEM: "Memory is full: use fewer or smaller slots, or fewer workers",
    errno.EFBIG: (
        "This process may not create memory or files of that size: raise the limit "
        "(`ulimit -f`), or use fewer or smaller slots"
    ),
    errno.EAGAIN: (
        "This user may start no more processes: raise the limit (`ulimit -u`, or the "
        "container's pids limit), or use fewer workers"
    ),
}
_RESOURCE_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""These mean the same when an env's own constructor meets them."""
_UNSTARTED = (
    "Workers are started with sys.executable. In an embedded interpreter, set it: "
    "multiprocessing.set_executable(path)"
)
_BY_TRANSFER = {
    "sending an info home": "Let infos hold plain data: numbers, arrays, text",
    "sending a result home": (
        "Let it return plain data, or use it beside the env: pool.apply(function)"
    ),
    "opening what it sent home": (
        "It can be unpickled in the worker only: return plain data, or make its module "
        "importable here too"
    ),
}
_BY_TRANSFER_IN_PYTHON = {"sending an info home": "Or leave that key out: infos=[...]"}
"""Where there is an option besides."""
_TIMEOUTS = {
    "construct": "start_timeout",
    "reset": "reset_timeout",
    "map": "item_timeout",
}


def advice_for(fault: Fault, syntax: OptionSyntax = PYTHON_SYNTAX) -> list[str]:
    """What to do next, a line each; none where the error itself says so."""
    lines = [_shared_process(fault, syntax), _first(fault, syntax)]
    if syntax.in_python:
        lines = [_closing(fault), *lines, _continuing(fault), _replay(fault)]
    return [line for line in lines if line]


def _closing(fault: Fault) -> str:
    """What the pool needs; under `corral train` the pool is the run's."""
    broken = fault.kind in ("died", "hung") and fault.item is None
    return "Close the pool." if broken and fault.command not in _STARTING else ""


def _continuing(fault: Fault) -> str:
    """How to continue after such faults, where a restart helps."""
    if fault.item is not None:
        again = 'To run such items again: on_fault="restart"'
        return "" if fault.gave_up else again
    if fault.gave_up:
        return "To allow more restarts: max_restarts=, restarts_per_minute="
    if not helped_by_restarts(fault):
        return ""
    option = "on_timeout" if fault.kind == "hung" else "on_fault"
    return f'To continue: {option}="restart"'


def helped_by_restarts(fault: Fault) -> bool:
    """Whether another env, or another worker, in its place may do better."""
    if isinstance(fault.exception, UsageError):
        return False  # it would return the same: the env has to be changed
    return (
        fault.kind in ("raised", "died", "hung")
        and fault.command in _RESTARTED_COMMANDS
    )


_RESTARTED_COMMANDS = ("step", "reset")
_STARTING = ("start", "construct")


def _shared_process(fault: Fault, syntax: OptionSyntax) -> str:
    """The hint that other envs in its process may be why it failed."""
    if not fault.company:
        return ""
    alone = syntax.option("isolation", "slot")
    return f"Other envs in its process: {fault.company} (without them: {alone})"


def _first(fault: Fault, syntax: OptionSyntax) -> str:
    if isinstance(fault.exception, UsageError):
        return ""  # it says so itself
    if fault.command in _BY_TRANSFER:
        said = _BY_TRANSFER[fault.command]
        other = _BY_TRANSFER_IN_PYTHON.get(fault.command)
        return f"{said}\n{other}" if other and syntax.in_python else said
    said = _BY_KIND[fault.kind](fault, syntax)
    return said.format(
        alone=syntax.option("isolation", "slot"),
        serial=syntax.option("backend", "serial"),
        memory_limit=syntax.option("memory_limit"),
    )


def _replay(fault: Fault) -> str:
    episode = fault.episode
    if episode is None:
        return ""
    if episode.missing:
        return f"It cannot be replayed: {episode.missing}"
    return "To reproduce: fault.save(path); corral.replay(path)"


def _raised(fault: Fault, syntax: OptionSyntax) -> str:
    if fault.item is not None:
        return "To debug it: call the function with that item yourself"
    if fault.command == "construct":
        return _start(fault, syntax)
    return ""


def _start(fault: Fault, syntax: OptionSyntax) -> str:
    error = fault.exception
    number = error.errno if isinstance(error, OSError) else None
    ours = fault.command == "start"
    if number in _ERRNOS and (ours or number in _RESOURCE_ERRNOS):
        return _ERRNOS[number]
    if ours and number is not None:
        return _UNSTARTED
    return "To debug it in your own process: {serial}"


def _died(fault: Fault, syntax: OptionSyntax) -> str:
    if fault.signal_name is not None:
        return _SIGNALS.get(fault.signal_name, "")
    if fault.exit_code == 1 and "Traceback" in fault.output:
        return "Python itself ended, for the reason above"
    if fault.exit_code is not None:
        return "Look for os._exit, or for a library that calls C's exit()"
    return "This is a bug in Corral: its traceback is on stderr"


def _hung(fault: Fault, syntax: OptionSyntax) -> str:
    longer = None if syntax.in_python or not fault.limit else 10 * fault.limit
    option = syntax.option(timeout_of(fault), longer)
    return f"If it is only slow, allow more time: {option}"


def timeout_of(fault: Fault) -> str:
    """The option that says how long it may take."""
    return _TIMEOUTS.get(fault.command, "step_timeout")


def _shardmate(fault: Fault, syntax: OptionSyntax) -> str:
    return "If it happens often: {alone} gives each slot its own worker"


_BY_KIND = {
    "raised": _raised,
    "start": _start,
    "died": _died,
    "hung": _hung,
    "shardmate": _shardmate,
}
