"""What it does to its process: changes of shared state, leftovers, memory."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from corral.tools.doctor.driver import EpisodeDriver, run_alone
from corral.tools.doctor.report import Finding, note, ok, warning
from corral.tools.doctor.subject import Subject

# State that a whole process shares ----------------------------------------------------

MOMENTS = 50
FIRST = "with the first env"
# Changes that break other code of the process: files that are not found, a Ctrl-C that
# does nothing, warnings that become exceptions. The others are notes.
HARMFUL_CHANGES = (
    "the working directory",
    "the signal handlers",
    "numpy's error handling",
    "the umask",
)
# Signals whose loss is felt; libraries of windows catch others, for good reasons.
FELT_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM)


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
    with suppress(OSError, IndexError):  # no such file or line
        _, _, caught = Path("/proc/self/status").read_text().partition("SigCgt:")
        mask = int(caught.split()[0], 16)
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


def measure_surroundings(
    factory: Callable[[], Any], seed: int
) -> list[tuple[str, str, str]]:
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


def check_surroundings(subject: Subject) -> Iterator[Finding]:
    """What was changed; a warning where other code is affected."""
    here = snapshot()
    changes = subject.ask(measure_surroundings, subject.seed)
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


# What is left after close() -----------------------------------------------------------

# Envs that are built and closed after the first one, which warms things up.
CYCLES = 3
CYCLE_MOMENTS = 10
# Seconds for what was killed to end.
KILLED_EXIT_SECONDS = 2.0


def measure_leftovers(factory: Callable[[], Any], seed: int) -> dict[str, list[str]]:
    """Build, play and close, over and over; kind -> names of what was left."""
    from corral.tools.census import added, take_census  # needs psutil

    run_alone(factory, seed, 0, CYCLE_MOMENTS)
    before = take_census()
    for _ in range(CYCLES):
        run_alone(factory, seed, 0, CYCLE_MOMENTS)
    more = added(before, take_census())
    # At least one for each env: what comes and goes by itself does not add up so.
    return {kind: names for kind, names in more.items() if len(names) >= CYCLES}


def check_leftovers(subject: Subject) -> Iterator[Finding]:
    """What adds up, and whether the worker's end takes it along."""
    left = subject.ask(measure_leftovers, subject.seed)
    if not left:
        yield ok(f"{CYCLES} envs left nothing behind after close()")
        return
    gone = _have_ended([int(one.split()[0]) for one in left.get("processes", [])])
    for kind, names in left.items():
        shown = ", ".join(sorted({name.partition(" ")[2] or name for name in names}))
        yield warning(
            f"{CYCLES} envs left {len(names)} {kind} after close(): {shown:.120}",
            "end and close them in close(). Until then, build envs once and keep "
            "them: the end of their worker process ends these too",
            "when their worker had ended, all of it was gone" if gone else "",
            data={kind: len(names)},
        )


def _have_ended(pids: list[int]) -> bool:
    """Whether these have ended, or do so within a moment."""
    from corral.tools.census import lives

    ending = time.monotonic() + KILLED_EXIT_SECONDS
    while any(lives(pid) for pid in pids):
        if time.monotonic() > ending:
            return False
        time.sleep(0.01)
    return True


# Memory that grows from episode to episode --------------------------------------------

EPISODES = 50
# Of an episode that does not end by itself sooner.
MAX_EPISODE_STEPS = 100
# For the episodes of one half.
HALF_SECONDS = 8.0
# Bytes that the recommended line allows a slot.
RECOMMENDED_LIMIT_BYTES = 4e9
# Bytes that a half has to add: less is what any interpreter does.
MIN_GROWTH_BYTES = 256 << 10


def measure_memory(factory: Callable[[], Any], seed: int) -> list[tuple[int, int, int]]:
    """After a warm-up, two halves: bytes that each added, its episodes and steps."""
    halves = []
    with EpisodeDriver(factory, seed) as driver:
        _episodes(driver)
        for _ in range(2):
            before = _held()
            played = _episodes(driver)
            halves.append((_held() - before, *played))
    return halves


def _episodes(driver: EpisodeDriver) -> tuple[int, int]:
    """Play a half, episodes cut short where they are long; returns both counts."""
    ending, steps, episodes = time.perf_counter() + HALF_SECONDS, 0, 0
    while episodes < EPISODES // 2 and time.perf_counter() < ending:
        episodes += 1
        driver.start_over()
        driver.advance()
        for _ in range(MAX_EPISODE_STEPS):
            steps += 1
            if driver.advance().over:
                break
    return episodes, steps


def _held() -> int:
    """Bytes of this process alone, once what is free was given back."""
    from corral.tools.census import unshared_memory

    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    return unshared_memory()


def check_memory(subject: Subject) -> Finding:
    """A leak adds about as much in either half."""
    halves = subject.ask(measure_memory, subject.seed)
    total, episodes, steps = map(sum, zip(*halves, strict=True))
    least, most = sorted(half[0] for half in halves)
    what = f"{episodes} episodes ({steps:,} steps)"
    data = {"bytes": total, "episodes": episodes, "steps": steps}
    if least < MIN_GROWTH_BYTES or most > 4 * least:
        text = f"its process grew by {max(0, total) / 2**20:.1f} MiB in {what}"
        return ok(text, data=data)
    again = sum(half[0] for half in subject.ask(measure_memory, subject.seed))
    return warning(
        f"its process grew by {total / 2**20:.1f} MiB in {what}: that is "
        f"{total / steps * 1e6 / 2**30:.1f} GiB in a million steps",
        'find what the env keeps; until then, memory_limit=... with isolation="slot" '
        "replaces the process of a slot that holds too much",
        f"a new process started small, and grew by {again / 2**20:.1f} MiB again",
        {"isolation": "slot", "memory_limit": RECOMMENDED_LIMIT_BYTES},
        data,
    )
