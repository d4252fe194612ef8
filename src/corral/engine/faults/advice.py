"""The next steps after a fault, in the syntax that the user writes options in.

In `corral train` options are settings, and the run itself says how to continue.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

from corral.errors import Fault, UsageError

_NATIVE = "debug the native code: run the program with {serial} under gdb"
_SIGNALS = {
    "SIGKILL": "if memory ran out (see the kernel's log): fewer workers, or {alone} "
    "with {memory_limit}",
    "SIGSEGV": _NATIVE,
    "SIGABRT": _NATIVE,
    "SIGFPE": _NATIVE,
    "SIGILL": "install the library that crashed for this CPU, or build it here",
    "SIGBUS": "if memory ran out: fewer or smaller slots, or more memory for the "
    "container (--shm-size, if the env uses /dev/shm)",
}
_ERRNOS = {
    errno.EMFILE: "raise the limit of open files (`ulimit -n`), or use fewer workers",
    errno.ENFILE: "the machine has too many open files: use fewer workers",
    errno.ENOSPC: "shared memory is full: give the container more (--shm-size, or its "
    "memory limit), or use fewer or smaller slots",
    errno.ENOMEM: "memory is full: use fewer or smaller slots, or fewer workers",
    errno.EFBIG: "raise the limit of file size (`ulimit -f`), or use fewer or smaller "
    "slots",
    errno.EAGAIN: "raise the limit of processes (`ulimit -u`, or the container's pids "
    "limit), or use fewer workers",
}
# These mean the same when an env's own constructor meets them.
_RESOURCE_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_BY_TRANSFER = {
    "sending an info to the caller": "let infos hold plain data: numbers, arrays, text",
    "sending a result to the caller": "return plain data, or use the value beside "
    "the env: pool.apply(function)",
    "unpickling what it sent": "return plain data, or make the module importable in "
    "this process too: the value can be unpickled in the worker only",
}
# For policies and other sites, whose results are those of all slots of a worker.
_SITE_BY_TRANSFER = {
    "sending a result to the caller": "let infos, extras and carries hold plain data: "
    "numbers, arrays, text"
}
# For the items of `map`, whose workers have no slots.
_MAP_SIGNALS = {
    "SIGKILL": "if memory ran out (see the kernel's log): fewer workers",
    "SIGBUS": "if memory ran out: fewer workers, or more memory for the container "
    "(--shm-size, if the function uses /dev/shm)",
}
_MAP_BY_TRANSFER = {
    "sending a result to the caller": "return plain data: numbers, arrays, text; or "
    "keep the object in the worker, as this_worker().resource"
}
# The commands of faults in questions to envs.
QUESTION_COMMANDS = ("call", "render", "get_attr", "set_attr", "apply")
# The command of a fault whose policy raised, in a worker.
POLICY = "the policy"
# The same while a worker makes its copy, by unpickling or by `policy_factory`.
MAKING_POLICY = f"making {POLICY}"
# The classes that stand for a backend, by syntax.
_DROP_INS = {
    "gymnasium": {"serial": "SyncVectorEnv", "process": "AsyncVectorEnv"},
    "sb3": {"serial": "DummyVecEnv", "process": "SubprocVecEnv"},
}
_TIMEOUTS = {
    "start": "start_timeout",
    "construct": "start_timeout",
    MAKING_POLICY: "start_timeout",
    "reset": "reset_timeout",
    "map": "item_timeout",
}


def mistake_in(fault: Fault) -> UsageError | None:
    """The error by which Corral refused a value or a call for this pool, if it did.

    Other errors of Corral's belong to the env or function that raised them: those of a
    pool that an env has inside, and classes that are not in `corral.errors`.
    """
    error = fault.exception
    if not isinstance(error, UsageError) or fault.by_env:
        return None
    return error if type(error).__module__ == UsageError.__module__ else None


def _option(syntax: str, name: str, value: Any = None) -> str:
    """An option with a value; without one, what comes after its name is left."""
    if name == "backend" and syntax in _DROP_INS:
        return _DROP_INS[syntax][value]
    if syntax == "yaml":
        return name if value is None else f"{name}: {value}"
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return f"{name}=" if value is None else f"{name}={shown}"


def advice_for(
    fault: Fault, syntax: str = "python", error: str = "error"
) -> Iterator[str]:
    """The next steps, a line each; none where the error itself says so.

    Args:
        fault: what happened.
        syntax: how the user writes options: as Python's keywords, as the settings of a
            run ("yaml"), `key: value`, or as keywords of the drop-ins ("gymnasium",
            "sb3"), which have a class for a backend.
        error: what has the fault, as an expression; "" for the reader of a saved one.
    """
    in_python = syntax != "yaml"
    starting = fault.command in ("start", "construct")
    in_pool = not starting and not _in_map(fault)
    if fault.kind == "node":
        if not fault.gave_up and not starting:
            restart = _option(syntax, "on_node_loss", "restart")
            yield f"continue after such losses: {restart}"
        if "fragment_timeout" in (fault.error_text or ""):
            yield f"give a fragment more time: {_option(syntax, 'fragment_timeout')}"
        yield "see which nodes are there: corral doctor --cluster"
        return
    if in_python and fault.unfit_action:
        yield "an action did not fit the action space: check_actions=True says how"
        if fault.kind == "raised":  # by the env, or on the way to it
            return
    if in_python and fault.kind in ("died", "hung") and in_pool:
        if fault.replaced:
            again = "make the call again: " * (fault.command in QUESTION_COMMANDS)
            yield f"{again}the worker was replaced, and the pool continues"
        elif not fault.closed:
            yield "close the envs and make new ones"
    alone = _in_processes(fault, _option(syntax, "isolation", "slot"), syntax)
    if mistake_in(fault) is None:  # which says so itself
        line = _by_transfer(fault).get(fault.command) or _by_kind(fault, syntax)
        if line:
            yield line.format(
                alone=alone,
                serial=_option(syntax, "backend", "serial"),
                memory_limit=_option(syntax, "memory_limit"),
            )
        if in_python and fault.command == "sending an info to the caller":
            yield "or leave that key out: infos=[...]"
    yield from _continuing(fault, syntax, alone)
    if in_python and fault.episode is not None:
        missing = fault.episode.missing
        save = f"{error}.fault.save(path), corral.replay(path)"
        how = f"replay: {save if error else 'corral replay FILE'}"
        yield f"(this episode cannot be replayed: {missing})" if missing else how


def _by_transfer(fault: Fault) -> dict[str, str]:
    """What to do first where something could not be sent, by the fault's command."""
    if _in_map(fault):
        return _BY_TRANSFER | _MAP_BY_TRANSFER
    return _BY_TRANSFER | (_SITE_BY_TRANSFER if fault.slot is None else {})


def _in_map(fault: Fault) -> bool:
    """Whether a worker of `map` or of a crew met it."""
    return fault.item is not None or fault.command == "map"


def _continuing(fault: Fault, syntax: str, alone: str) -> Iterator[str]:
    """How to continue after such faults, where a restart helps.

    Args:
        fault: what happened.
        syntax: as for `advice_for`.
        alone: the option that gives each env a process.
    """
    interfere = f"if envs interfere: {alone}" if fault.company else ""
    again = ""
    if syntax == "yaml":
        pass
    elif fault.item is not None:
        if not fault.gave_up:
            restart = _in_processes(fault, 'on_fault="restart"', syntax)
            again = f"run such items again: {restart}"
    elif fault.gave_up:
        again = "allow more restarts: max_restarts=, restarts_per_minute="
    elif helped_by_restarts(fault) and not fault.replaced:
        name = "on_timeout" if fault.kind == "hung" else "on_fault"
        option = f'{name}="restart"'
        if interfere:  # on one line, which names the backend once
            restart = _in_processes(fault, option, syntax, brief=True)
            slot = _option(syntax, "isolation", "slot")
            yield f"continue: {restart}; if envs interfere: {slot}"
            return
        again = f"continue after errors: {_in_processes(fault, option, syntax)}"
    yield from filter(None, (again, interfere))


def in_caller(fault: Fault) -> bool:
    """Whether its env or function ran in this process (serial, thread)."""
    return fault.pid == os.getpid() and fault.node is None


def _in_processes(fault: Fault, option: str, syntax: str, brief: bool = False) -> str:
    """An option that needs worker processes, with the backend that has them."""
    if not in_caller(fault):
        return option
    process = _option(syntax, "backend", "process")
    if syntax in _DROP_INS:
        return f"{process} with {option}" if brief else f"{process}(..., {option})"
    return f"{process}, {option}"


def helped_by_restarts(fault: Fault) -> bool:
    """Whether another env, or another worker, in its place may do better."""
    if mistake_in(fault) is not None:
        return False  # it would return the same: the env has to be changed
    kinds = ("raised", "died", "hung")
    return fault.kind in kinds and fault.command in ("step", "reset")


def _by_kind(fault: Fault, syntax: str) -> str:
    """What to do first; "" where nothing general helps."""
    if fault.kind == "died":
        return _after_death(fault)
    if fault.kind == "hung":
        longer = 10 * fault.limit if syntax == "yaml" and fault.limit else None
        name = _TIMEOUTS.get(fault.command, "step_timeout")
        return f"if it is only slow, allow more time: {_option(syntax, name, longer)}"
    if fault.kind == "shardmate":
        return "if it happens often, give each slot its own worker: {alone}"
    if fault.item is not None:
        here = in_caller(fault)  # as it would be raised there
        return "" if here else "debug it: call the function with that item yourself"
    if fault.command == MAKING_POLICY:
        return "debug it: call policy_factory, or pickle.loads(pickle.dumps(policy))"
    if fault.command == POLICY:
        return f"debug it in your own process: {_option(syntax, 'act_in', 'caller')}"
    starting = fault.kind == "start" or fault.command == "construct"
    return _after_start(fault) if starting else ""


def _after_start(fault: Fault) -> str:
    number = getattr(fault.exception, "errno", None)
    ours = fault.command == "start"
    if number in _ERRNOS and (ours or number in _RESOURCE_ERRNOS):
        return _ERRNOS[number]
    if ours and number is not None:
        return (
            "Corral starts workers with sys.executable; in an embedded interpreter, "
            "set it: multiprocessing.set_executable(path)"
        )
    return "" if in_caller(fault) else "debug it in your own process: {serial}"


def _after_death(fault: Fault) -> str:
    if fault.signal_name is not None:
        signals = _SIGNALS | (_MAP_SIGNALS if _in_map(fault) else {})
        return signals.get(fault.signal_name, "")
    if fault.exit_code == 1 and "Traceback" in fault.output:
        return "read the traceback in the last output: it ended the worker's Python"
    if fault.exit_code is not None:
        return "look for os._exit, or for a library that calls C's exit()"
    return "report a bug in Corral: its traceback is on stderr"
