"""What to do about a fault: one line for every kind, in the user's syntax.

Whoever trains by `corral train` is not told Python's keywords; and how a run goes on is
the run's to say.
"""

from __future__ import annotations

import errno

from corral.engine.faults.option_syntax import PYTHON_SYNTAX, OptionSyntax
from corral.errors import Fault, UsageError

_NATIVE = (
    "Where Python was is in the output above. If the env is not safe beside others in "
    "one process, {alone} gives each its own; to catch it in a debugger, "
    "run the program with {serial} under gdb."
)
_SIGNALS = {
    "SIGKILL": (
        "If memory ran out (the kernel's log says so): fewer workers, or "
        "{alone} with {memory_limit} for an env that leaks."
    ),
    "SIGSEGV": _NATIVE,
    "SIGABRT": _NATIVE,
    "SIGFPE": _NATIVE,
    "SIGILL": "Install the library that crashed for this CPU, or build it here.",
    "SIGBUS": (
        "If memory ran out: fewer or smaller slots, or more memory for the container "
        "(and --shm-size, where the env uses /dev/shm itself)."
    ),
    "SIGTERM": "Somebody ended it: a scheduler, a time limit, or a user.",
}
_ERRNOS = {
    errno.EMFILE: (
        "This process may open no more files: raise its limit (`ulimit -n`), or use "
        "fewer workers."
    ),
    errno.ENFILE: "The machine has too many open files: use fewer workers.",
    errno.ENOSPC: (
        "Shared memory is full: give the container more (--shm-size, or its memory "
        "limit), or use fewer or smaller slots."
    ),
    errno.ENOMEM: "Memory is full: use fewer or smaller slots, or fewer workers.",
    errno.EFBIG: (
        "This process may not make memory or files that large (`ulimit -f`): raise "
        "that, or use fewer or smaller slots."
    ),
    errno.EAGAIN: (
        "This user may start no more processes (`ulimit -u`, or the container's pids "
        "limit): raise that, or use fewer workers."
    ),
}
_RESOURCE_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""These mean the same when an env's own constructor meets them."""
_UNSTARTED = (
    "Workers are run by the interpreter that runs you; where that is not a Python, as "
    "in an embedded one, name it by multiprocessing.set_executable(path)."
)
_BY_TRANSFER = {
    "sending an info home": "Let infos hold plain data: numbers, arrays, text.",
    "sending a result home": (
        "Let it return plain data, or do what you want with it beside the env: "
        "pool.apply(function)."
    ),
    "opening what it sent home": (
        "It can be unpickled in the worker alone: return plain data, or make its "
        "module importable here too."
    ),
}
_BY_TRANSFER_IN_PYTHON = {
    "sending an info home": " Or keep that key out of them with infos=[...]."
}
"""Where there is an option besides."""
_TIMEOUTS = {
    "construct": "start_timeout",
    "reset": "reset_timeout",
    "map": "item_timeout",
}


def advice_for(fault: Fault, syntax: OptionSyntax = PYTHON_SYNTAX) -> str:
    """What to do next; "" where the error itself says so."""
    parts = [_shared_process(fault, syntax), _first(fault, syntax)]
    if syntax.in_python:
        parts += [_continuing(fault), _replay(fault)]
    return " ".join(part for part in parts if part)


def _continuing(fault: Fault) -> str:
    """How the next one is mended, where that helps."""
    if fault.item is not None:
        again = 'To have such items run again: on_fault="restart".'
        return "" if fault.gave_up else again
    if fault.gave_up:
        return (
            "max_restarts= and restarts_per_minute= say how often a slot may be "
            "restarted."
        )
    if not helped_by_restarts(fault):
        return ""
    option = "on_timeout" if fault.kind == "hung" else "on_fault"
    return f'To go on with a new one: {option}="restart".'


def helped_by_restarts(fault: Fault) -> bool:
    """Whether another env, or another worker, in its place may do better."""
    if isinstance(fault.exception, UsageError):
        return False  # it would return the same: the env has to be changed
    return (
        fault.kind in ("raised", "died", "hung")
        and fault.command in _RESTARTED_COMMANDS
    )


_RESTARTED_COMMANDS = ("step", "reset")


def _shared_process(fault: Fault, syntax: OptionSyntax) -> str:
    """The hint that other envs in its process may be why it failed."""
    if not fault.company:
        return ""
    others = "another env" if fault.company == 1 else f"{fault.company} other envs"
    alone = syntax.option("isolation", "slot")
    return (
        f"It shared its process with {others}; if it works alone ({alone}), they "
        "interfere with each other."
    )


def _first(fault: Fault, syntax: OptionSyntax) -> str:
    if isinstance(fault.exception, UsageError):
        return ""  # it says so itself
    if fault.command in _BY_TRANSFER:
        said = _BY_TRANSFER[fault.command]
        return said + _BY_TRANSFER_IN_PYTHON.get(fault.command, "") * syntax.in_python
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
        return f"It cannot be replayed: {episode.missing}."
    return "To run it again by itself: fault.save(path), then corral.replay(path)."


def _raised(fault: Fault, syntax: OptionSyntax) -> str:
    if fault.item is not None:
        return "To debug it, call the function with that item yourself."
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
    return "To debug it, build it in your own process: {serial}."


def _died(fault: Fault, syntax: OptionSyntax) -> str:
    if fault.signal_name is not None:
        return _SIGNALS.get(fault.signal_name, "")
    if fault.exit_code == 1 and "Traceback" in fault.output:
        return "Python itself ended, for the reason above."
    if fault.exit_code is not None:
        return "Look for os._exit, or for a library that calls C's exit()."
    return "That is a defect of Corral's: its traceback is on stderr."


def _hung(fault: Fault, syntax: OptionSyntax) -> str:
    longer = None if syntax.in_python or not fault.limit else 10 * fault.limit
    option = syntax.option(timeout_of(fault), longer)
    return f"If it is only slow, give it longer: {option}."


def timeout_of(fault: Fault) -> str:
    """The option that says how long it may take."""
    return _TIMEOUTS.get(fault.command, "step_timeout")


def _shardmate(fault: Fault, syntax: OptionSyntax) -> str:
    return "If it happens often, {alone} keeps one slot's end from its neighbours."


_BY_KIND = {
    "raised": _raised,
    "start": _start,
    "died": _died,
    "hung": _hung,
    "shardmate": _shardmate,
}
