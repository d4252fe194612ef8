"""Does it change what a whole process shares: directory, environ, handlers, …?"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Subject

MOMENTS = 50
HARMFUL_CHANGES = (
    "the working directory",
    "the signal handlers",
    "numpy's error handling",
    "the umask",
)
"""What others in the process come to feel: files that are not found, a Ctrl-C that does
nothing, warnings that become exceptions. The rest is worth a word."""


FELT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM)
"""Signals whose loss is felt; libraries of windows catch others, for good reasons."""


def snapshot() -> dict[str, dict[str, str]]:
    """What this process's parts share, as text."""
    return {
        "the working directory": {"": os.getcwd()},
        "os.environ": dict(os.environ),
        "the signal handlers": _handlers(),
        "numpy's error handling": {k: str(v) for k, v in np.geterr().items()},
        "numpy's print options": {
            key: str(value) for key, value in np.get_printoptions().items()
        },
        "the umask": {"": f"{_umask():03o}"},
        "the root logger": {"level": logging.getLevelName(logging.getLogger().level)},
        "the recursion limit": {"": str(sys.getrecursionlimit())},
        **_libraries(),
    }


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


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _libraries() -> dict[str, dict[str, str]]:
    """Of those that are imported; nothing is imported for it."""
    found: dict[str, dict[str, str]] = {}
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        found["torch"] = {
            "threads": str(torch.get_num_threads()),
            "default dtype": str(torch.get_default_dtype()),
        }
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
    for when in ("with the first env", ""):
        driver = EpisodeDriver(factory, seed)
        look(when or "the constructor")
        for moment in driver.play(MOMENTS):
            look(when or moment.what.split()[0])
        driver.close()
        look(when or "close")
    return found


def _changes(
    before: dict[str, dict[str, str]], now: dict[str, dict[str, str]]
) -> Iterator[tuple[str, str]]:
    for what, values in now.items():
        old = before.get(what) or _untouched(what)
        for key in sorted(old.keys() | values.keys()):
            was, became = old.get(key), values.get(key)
            if was != became:
                name = f"{key}: " if key else ""
                yield what, f"{name}{_shown(was)} became {_shown(became)}"


def _shown(value: str | None) -> str:
    return "nothing" if value is None else f"{value:.60}"


def examine(subject: Subject) -> Iterator[Finding]:
    """What was changed; harmful where others would feel it."""
    here = snapshot()
    changes = subject.ask(measure, subject.seed)
    untouched = "" if list(_changes(here, snapshot())) else "in this process nothing"
    kinds = dict.fromkeys(what for what, _, _ in changes)
    for what in kinds:
        own = [(how, when) for name, how, when in changes if name == what]
        often = [one for one in own if one[1] != "with the first env"]
        how, when = (often or own)[0]
        text = f"{what}, in {when}: {how}".replace("in with", "with")
        if what in HARMFUL_CHANGES:
            yield Finding(
                "global state",
                "warning",
                f"changes {text}",
                'backend="process" keeps it out of your program, isolation="slot" out '
                "of other envs; or undo it in the env",
                f"it was done in a worker, and {untouched} changed" * bool(untouched),
                {"backend": "process"},
            )
        else:
            yield Finding("global state", "note", f"changes {text}")
    if not changes:
        names = ", ".join(list(here)[:4])
        yield Finding("global state", "ok", f"leaves {names} and the like alone")


CHECK = Check("global state", examine)
