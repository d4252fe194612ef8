"""Is anything left after close(): processes, threads, descriptors, shared memory?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from corral.tools.doctor.driver import run_alone
from corral.tools.doctor.finding import Finding, ok, warning
from corral.tools.doctor.subject import Subject

CYCLES = 3
"""Envs that are built and closed after the first one, which warms things up."""
MOMENTS = 10
KILLED_EXIT_SECONDS = 2.0
"""Seconds for what was killed to end."""


def measure(factory: Callable[[], Any], seed: int) -> dict[str, list[str]]:
    """Build, play and close, over and over; kind -> names of what was left."""
    from corral.tools.census import take_census  # needs psutil

    run_alone(factory, seed, 0, MOMENTS)
    before = take_census()
    for _ in range(CYCLES):
        run_alone(factory, seed, 0, MOMENTS)
    more = before.more(take_census())
    # At least one for each env: what comes and goes by itself does not add up so.
    return {kind: names for kind, names in more.items() if len(names) >= CYCLES}


def examine(subject: Subject) -> Iterator[Finding]:
    """What adds up, and whether the worker's end takes it along."""
    left = subject.ask(measure, subject.seed)
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
