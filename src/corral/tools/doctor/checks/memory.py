"""Does its memory grow from episode to episode?"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding, ok, warning
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
    with EpisodeDriver(factory, seed) as driver:
        _episodes(driver, EPISODES // 2)
        sizes, episodes, steps = [_held()], 0, 0
        for _ in range(2):
            played, taken = _episodes(driver, EPISODES // 2)
            episodes, steps = episodes + played, steps + taken
            sizes.append(_held())
    return Growth((sizes[1] - sizes[0], sizes[2] - sizes[1]), episodes, steps)


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
    from corral.tools.census import unshared_memory

    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    return unshared_memory()


def examine(subject: Subject) -> Iterator[Finding]:
    """A leak adds about as much in either half."""
    growth: Growth = subject.ask(measure, subject.seed)
    least, most = sorted(growth.halves)
    total = sum(growth.halves)
    what = f"{growth.episodes} episodes ({growth.steps:,} steps)"
    data = {"bytes": total, "episodes": growth.episodes, "steps": growth.steps}
    if least < MIN_GROWTH_BYTES or most > 4 * least:
        text = f"its process grew by {max(0, total) / 2**20:.1f} MiB in {what}"
        yield ok(text, data=data)
        return
    again = sum(subject.ask(measure, subject.seed).halves)
    yield warning(
        f"its process grew by {total / 2**20:.1f} MiB in {what}: that is "
        f"{total / growth.steps * 1e6 / 2**30:.1f} GiB in a million steps",
        'find what the env keeps; until then, memory_limit=... with isolation="slot" '
        "replaces the process of a slot that holds too much",
        f"a new process started small, and grew by {again / 2**20:.1f} MiB again",
        {"isolation": "slot", "memory_limit": RECOMMENDED_LIMIT_BYTES},
        data,
    )
