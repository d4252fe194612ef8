"""Does its memory grow from episode to episode?"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Subject

EPISODES = 50
MAX_EPISODE_STEPS = 100
"""Of an episode that does not end by itself sooner."""
HALF_SECONDS = 8.0
"""For the episodes of one half."""
RECOMMENDED_LIMIT_BYTES = 4e9
"""Bytes that the recommended line allows a slot."""
MIN_GROWTH_BYTES = 256 << 10
"""Bytes that a half has to add: less is what any interpreter does."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes that two halves added, and how long they were."""

    halves: tuple[int, int]
    episodes: int
    steps: int


def measure(factory: Callable[[], Any], seed: int) -> Growth:
    """A warm-up, then as many episodes again, in two halves."""
    driver = EpisodeDriver(factory, seed)
    _episodes(driver, EPISODES // 2)
    sizes, episodes, steps = [_held()], 0, 0
    for _ in range(2):
        played, taken = _episodes(driver, EPISODES // 2)
        episodes, steps = episodes + played, steps + taken
        sizes.append(_held())
    driver.close()
    first, second = np.diff(sizes)
    return Growth((int(first), int(second)), episodes, steps)


def _episodes(driver: EpisodeDriver, count: int) -> tuple[int, int]:
    """Play so many, cut short where they are long; returns episodes and steps."""
    ending, steps = time.perf_counter() + HALF_SECONDS, 0
    for episode in range(count):
        driver.start_over()
        driver.advance()
        for _ in range(MAX_EPISODE_STEPS):
            steps += 1
            if driver.advance().over:
                break
        if time.perf_counter() > ending:
            return episode + 1, steps
    return count, steps


def _held() -> int:
    """Bytes of this process alone, once what is free was given back."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        pass
    try:
        with open("/proc/self/statm", encoding="ascii") as pages:
            resident, shared = (int(part) for part in pages.read().split()[1:3])
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: the most it ever held, which a leak raises as well
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def examine(subject: Subject) -> Iterator[Finding]:
    """A leak adds about as much in either half."""
    growth: Growth = subject.ask(measure, subject.seed)
    least, most = sorted(growth.halves)
    total = sum(growth.halves)
    what = f"{growth.episodes} episodes ({growth.steps:,} steps)"
    data = {"bytes": total, "episodes": growth.episodes, "steps": growth.steps}
    if least < MIN_GROWTH_BYTES or most > 4 * least:
        text = f"held {max(0, total) / 2**20:.1f} MiB more after {what}"
        yield Finding("memory", "ok", text, data=data)
        return
    million = total / growth.steps * 1e6
    yield Finding(
        "memory",
        "warning",
        f"holds {total / 2**20:.1f} MiB more after {what}: that is "
        f"{million / 2**30:.1f} GiB in a million steps",
        'memory_limit=... with isolation="slot" gives a slot a new process when it '
        "holds too much; better, find what the env keeps",
        _tried(subject),
        {"isolation": "slot", "memory_limit": RECOMMENDED_LIMIT_BYTES},
        data,
    )


def _tried(subject: Subject) -> str:
    again: Growth = subject.ask(measure, subject.seed)
    first = sum(again.halves)
    return f"a new process began without it, and took {first / 2**20:.1f} MiB again"


CHECK = Check("memory", examine, seconds=90.0)
