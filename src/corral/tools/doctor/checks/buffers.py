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
from corral.tools.doctor.driver import Player
from corral.tools.doctor.env_response import Moment
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Patient

MOMENTS = 30


def measure(factory: Callable[[], Any], seed: int) -> str:
    """The first observation that a later call changed; "" if none was."""
    player = Player(factory, seed)
    kept: list[tuple[Moment, Moment]] = []
    for moment in player.play(MOMENTS):
        for given, remembered in kept:
            changed = first_difference([given], [remembered])
            if changed:
                player.close()
                return f"the {moment.what} changed what was returned before ({changed})"
        only = Moment(moment.what, moment.obs, 0.0, False, False, None, False)
        kept = [*kept[-2:], (only, copy.deepcopy(only))]
    player.close()
    return ""


def examine(patient: Patient) -> Iterator[Finding]:
    """Whether observations stay what they were."""
    changed = patient.ask(measure, patient.seed)
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
