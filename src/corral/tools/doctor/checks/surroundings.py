"""Does it change what a whole process shares: directory, environ, handlers, …?"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding, note, ok, warning
from corral.tools.doctor.subject import Subject

MOMENTS = 50
FIRST = "with the first env"
HARMFUL_CHANGES = (
    "the working directory",
    "the signal handlers",
    "numpy's error handling",
    "the umask",
)
"""Changes that break other code of the process: files that are not found, a Ctrl-C that
does nothing, warnings that become exceptions. The others are notes."""
FELT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM)
"""Signals whose loss is felt; libraries of windows catch others, for good reasons."""


def snapshot() -> dict[str, dict[str, str]]:
    """What this process's parts share, as text."""
    mask = os.umask(0o077)
    os.umask(mask)
    return {
        "the working directory": {"": os.getcwd()},
        "os.environ": dict(os.environ),
        "the signal handlers": _handlers(),
        "numpy's error handling": _texts(np.geterr()),
        "numpy's print options": _texts(np.get_printoptions()),
        "the umask": {"": f"{mask:03o}"},
        "the root logger": {"level": logging.getLevelName(logging.getLogger().level)},
        "the recursion limit": {"": str(sys.getrecursionlimit())},
        **_libraries(),
    }


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in values.items()}


def _handlers() -> dict[str, str]:
    """Python's handler, else what the kernel knows: C code sets its own."""
    found = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        name = getattr(number, "name", str(number))
        known = getattr(handler, "__qualname__", None) or getattr(handler, "name", None)
        found[name] = known or str(handler)
    try:
        with open("/proc/self/status", encoding="ascii") as lines:
            caught = next(line for line in lines if line.startswith("SigCgt"))
        mask = int(caught.split()[1], 16)
    except (OSError, StopIteration):
        return found
    for number in FELT_SIGNALS:
        in_c = mask >> (number - 1) & 1
        found[f"{number.name} in C"] = "caught" if in_c else "not caught"
    return found


def _libraries() -> dict[str, dict[str, str]]:
    """Of those that are imported; nothing is imported for it."""
    found: dict[str, dict[str, str]] = {}
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
        found["torch"] = _texts({"threads": threads, "default dtype": dtype})
    matplotlib: Any = sys.modules.get("matplotlib")
    if matplotlib is not None and hasattr(matplotlib, "rcParams"):
        # As a dict: asked for in other ways, it is resolved, a change of its own.
        backend = dict.get(matplotlib.rcParams, "backend")
        known = backend if isinstance(backend, str) else "none yet"
        found["matplotlib"] = {"backend": known.lower()}
    return found


def _untouched(library: str) -> dict[str, str]:
    """What a library that an env has imported would hold by itself, in a worker."""
    if library == "torch":
        return {"threads": "1", "default dtype": "torch.float32"}
    return {"backend": os.environ.get("MPLBACKEND", "none yet").lower()}


def measure(factory: Callable[[], Any], seed: int) -> list[tuple[str, str, str]]:
    """(what, how, when) of every change."""
    found: list[tuple[str, str, str]] = []
    before = snapshot()

    def look(when: str) -> None:
        nonlocal before
        now = snapshot()
        found.extend((what, how, when) for what, how in _changes(before, now))
        before = now

    # The first env imports its modules; what that changes is not the env's doing.
    for when in (FIRST, ""):
        driver = EpisodeDriver(factory, seed)
        look(when or "in the constructor")
        for moment in driver.play(MOMENTS):
            look(when or f"in {moment.what.split()[0]}")
        driver.close()
        look(when or "in close")
    return found


def _changes(
    before: dict[str, dict[str, str]], now: dict[str, dict[str, str]]
) -> Iterator[tuple[str, str]]:
    for what, values in now.items():
        old = before.get(what) or _untouched(what)
        for key in sorted(old.keys() | values.keys()):
            was, became = old.get(key, "nothing"), values.get(key, "nothing")
            if was != became:
                name = f"{key}: " if key else ""
                yield what, f"{name}{was:.60} became {became:.60}"


def examine(subject: Subject) -> Iterator[Finding]:
    """What was changed; a warning where other code is affected."""
    here = snapshot()
    changes = subject.ask(measure, subject.seed)
    untouched = not list(_changes(here, snapshot()))
    for what in dict.fromkeys(name for name, _, _ in changes):
        own = [(how, when) for name, how, when in changes if name == what]
        how, when = next((one for one in own if one[1] != FIRST), own[0])
        text = f"changes {what}, {when}: {how}"
        if what not in HARMFUL_CHANGES:
            yield note(text)
            continue
        yield warning(
            text,
            'backend="process" keeps it out of your program, isolation="slot" out '
            "of other envs; or undo it in the env",
            "the worker's change did not reach this process" if untouched else "",
            {"backend": "process"},
        )
    if not changes:
        yield ok(f"does not change {', '.join(list(here)[:4])} and the like")
