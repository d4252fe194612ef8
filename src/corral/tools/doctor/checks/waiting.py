"""Does a step wait instead of computing: for real time to pass, for a server?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from corral.engine.layout.durations import duration_text
from corral.tools.doctor.checks.cost import measure as measure_cost
from corral.tools.doctor.checks.threads import pace
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding, ok, warning
from corral.tools.doctor.subject import Subject

WAITING_CPU_SHARE = 0.5
LONG_STEP_SECONDS = 200e-6
"""Seconds of a step that are worth a look."""
REAL_TIME_PARAMETERS = (
    *("regulate_frequency", "real_time", "realtime", "use_real_time"),
    *("use_realtime", "run_in_real_time", "enforce_real_time"),
)
"""Parameters that are true where a step lasts as long as in the real world."""
ENVS_SIDE_BY_SIDE = 4
PACE_SECONDS = 0.7


def measure_pace(factory: Callable[[], Any], seed: int, slot: int) -> float:
    """Resets and steps per second."""
    with EpisodeDriver(factory, seed, slot) as driver:
        driver.advance()
        return pace(driver, PACE_SECONDS)


def examine(subject: Subject) -> Iterator[Finding]:
    """Whether it waits, and what may turn that off."""
    cost = subject.cost or subject.ask(measure_cost, subject.seed)
    data = {"computing": cost.computing}
    if cost.computing >= WAITING_CPU_SHARE or cost.step < LONG_STEP_SECONDS:
        yield ok(f"computes for {cost.computing:.0%} of a step", data=data)
        return
    text = (
        f"a step takes {duration_text(cost.step)} and computes for only "
        f"{cost.computing:.0%} of that: it sleeps, or waits for something"
    )
    values = subject.arguments
    name = next((one for one in REAL_TIME_PARAMETERS if values.get(one) is True), "")
    remedy = (
        f"pass {name}=False: training does not need real time"
        if name
        else "if it keeps real time, turn that off; if it waits for a server, give "
        'each env a thread or process of its own, as backend="auto" does'
    )
    changed = subject.given(name, False) if name else None
    if changed is None:
        yield warning(text, remedy, _side_by_side(subject), data=data)
        return
    subject.cost = changed.ask(measure_cost, subject.seed)  # for the recommended line
    tried = f"with {name}=False a step takes {duration_text(subject.cost.step)}"
    yield warning(text, remedy, tried, {"env_kwargs": {name: False}}, data)


def _side_by_side(subject: Subject) -> str:
    """What several at once get done, which an env that computes could not."""
    slots = [(subject.seed, slot) for slot in range(ENVS_SIDE_BY_SIDE)]
    alone = subject.ask(measure_pace, *slots[0])
    paces = subject.ask_each(measure_pace, slots)
    both = sum(one for one in paces if isinstance(one, float))
    return (
        f"{ENVS_SIDE_BY_SIDE} processes did {both / alone:.1f} times the steps of one"
    )
