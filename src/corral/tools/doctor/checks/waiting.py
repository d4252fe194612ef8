"""Does a step wait instead of computing: for real time to pass, for a server?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from corral.tools.doctor.checks.cost import measure as measure_cost
from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import Player
from corral.tools.doctor.duration_text import shown
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Cost, Patient

MOSTLY_WAITING = 0.5
LONG = 200e-6
"""Seconds of a step that are worth a look."""
NAMES = (
    "regulate_frequency",
    "real_time",
    "realtime",
    "use_real_time",
    "use_realtime",
    "run_in_real_time",
    "enforce_real_time",
)
"""Parameters that are true where a step lasts as long as in the real world."""
SIDE_BY_SIDE = 4
SECONDS = 0.7


def measure_pace(factory: Callable[[], Any], seed: int, slot: int) -> float:
    """Resets and steps per second."""
    player = Player(factory, seed, slot)
    player.advance()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS or not count:
        player.advance()
        count += 1
    pace = count / (time.perf_counter() - began)
    player.close()
    return pace


def examine(patient: Patient) -> Iterator[Finding]:
    """Whether it waits, and what may turn that off."""
    cost = patient.cost or patient.ask(measure_cost, patient.seed)
    data = {"computing": cost.computing}
    if cost.computing >= MOSTLY_WAITING or cost.step < LONG:
        text = f"computes for {cost.computing:.0%} of a step"
        yield Finding("waiting", "ok", text, data=data)
        return
    text = (
        f"a step takes {shown(cost.step)} and computes for {cost.computing:.0%} of it: "
        "it sleeps, or waits for something"
    )
    name = _asked(patient)
    changed = patient.given(name, False) if name else None
    if changed is not None:
        without: Cost = changed.ask(measure_cost, patient.seed)
        patient.cost = without  # what the recommended line goes by
        tried = f"with {name}=False a step takes {shown(without.step)}"
        options = {"env_kwargs": {name: False}}
    else:
        tried, options = _side_by_side(patient), {}
    yield Finding("waiting", "warning", text, _remedy(name), tried, options, data)


def _remedy(name: str) -> str:
    if name:
        return f"pass {name}=False: nobody watches while it trains"
    return (
        "if it keeps real time, turn that off; if it waits for a server, give each env "
        'a thread or process of its own, as backend="auto" does'
    )


def _asked(patient: Patient) -> str:
    """The parameter that has it wait, where a name gives it away."""
    values = patient.arguments
    return next((name for name in NAMES if values.get(name) is True), "")


def _side_by_side(patient: Patient) -> str:
    """What several at once get done, which an env that computes could not."""
    alone = patient.ask(measure_pace, patient.seed, 0)
    paces = patient.ask_each(
        measure_pace, [(patient.seed, slot) for slot in range(SIDE_BY_SIDE)]
    )
    both = sum(pace for pace in paces if isinstance(pace, float))
    return f"{SIDE_BY_SIDE} processes did {both / alone:.1f} times the steps of one"


CHECK = Check("waiting", examine)
