"""Does it return the same array again and again?

An observation that is kept then changes with the next step. Corral copies observations;
lists, replay buffers and wrappers that keep them may not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from corral.tools.doctor.differences import difference
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding, ok, warning
from corral.tools.doctor.subject import Subject

MOMENTS = 30


def measure(factory: Callable[[], Any], seed: int) -> str:
    """The first observation that a later call changed; "" if none was."""
    driver = EpisodeDriver(factory, seed)
    kept: list[tuple[str, Any, Any]] = []
    changed = ""
    for moment in driver.play(MOMENTS):
        for what, given, remembered in kept:
            if place := difference("obs", given, remembered):
                text = f"{moment.what} changed what was returned before"
                changed = changed or f"{text} ({what}: {place})"
        kept = [*kept[-2:], (moment.what, moment.obs, copy.deepcopy(moment.obs))]
    driver.close()
    return changed


def examine(subject: Subject) -> Iterator[Finding]:
    """Whether observations stay what they were."""
    changed = subject.ask(measure, subject.seed)
    if not changed:
        yield ok("later steps do not change an observation that was returned")
        return
    yield warning(
        f"reuses its observation buffer: {changed}",
        "return a copy. Corral's batches are copies already; a loop of your own that "
        "keeps observations needs obs.copy()",
        "a copy of the observation did not change",
    )
