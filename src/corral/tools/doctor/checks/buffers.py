"""Does it hand out the same array again and again?

Whoever keeps such an observation finds another one in it later. Corral copies what it
is given; lists, replay buffers and wrappers that keep observations may not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from corral.tools.doctor.contract import Check
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.env_response import EnvResponse
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Subject

MOMENTS = 30


def measure(factory: Callable[[], Any], seed: int) -> str:
    """The first observation that a later call changed; "" if none was."""
    driver = EpisodeDriver(factory, seed)
    kept: list[tuple[EnvResponse, EnvResponse]] = []
    for moment in driver.play(MOMENTS):
        for given, remembered in kept:
            changed = first_difference([given], [remembered])
            if changed:
                driver.close()
                return f"the {moment.what} changed what was returned before ({changed})"
        only = EnvResponse(moment.what, moment.obs, 0.0, False, False, None, False)
        kept = [*kept[-2:], (only, copy.deepcopy(only))]
    driver.close()
    return ""


def examine(subject: Subject) -> Iterator[Finding]:
    """Whether observations stay what they were."""
    changed = subject.ask(measure, subject.seed)
    if not changed:
        text = "observations stay what they were when more steps are taken"
        yield Finding("buffers", "ok", text)
        return
    yield Finding(
        "buffers",
        "warning",
        f"reuses its observation buffer: {changed}",
        "return a copy; Corral's batches are copies already, a loop of your own that "
        "keeps observations needs obs.copy()",
        "a copy that was kept beside it stayed as it was",
    )


CHECK = Check("buffers", examine)
