"""Does a step wait instead of computing: for real time to pass, for a server?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from corral.tools.doctor.checks.cost import measure as measure_cost
from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.duration_text import duration_text
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import EnvCost, Subject

WAITING_CPU_SHARE = 0.5
LONG_STEP_SECONDS = 200e-6
"""Seconds of a step that are worth a look."""
REAL_TIME_PARAMETERS = (
    "regulate_frequency",
    "real_time",
    "realtime",
    "use_real_time",
    "use_realtime",
    "run_in_real_time",
    "enforce_real_time",
)
"""Parameters that are true where a step lasts as long as in the real world."""
ENVS_SIDE_BY_SIDE = 4
PACE_SECONDS = 0.7


def measure_pace(factory: Callable[[], Any], seed: int, slot: int) -> float:
    """Resets and steps per second."""
    driver = EpisodeDriver(factory, seed, slot)
    driver.advance()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < PACE_SECONDS or not count:
        driver.advance()
        count += 1
    pace = count / (time.perf_counter() - began)
    driver.close()
    return pace


def examine(subject: Subject) -> Iterator[Finding]:
    """Whether it waits, and what may turn that off."""
    cost = subject.cost or subject.ask(measure_cost, subject.seed)
    data = {"computing": cost.computing}
    if cost.computing >= WAITING_CPU_SHARE or cost.step < LONG_STEP_SECONDS:
        text = f"computes for {cost.computing:.0%} of a step"
        yield Finding("waiting", "ok", text, data=data)
        return
    text = (
        f"a step takes {duration_text(cost.step)} and computes for "
        f"{cost.computing:.0%} of it: "
        "it sleeps, or waits for something"
    )
    name = _real_time_parameter(subject)
    changed = subject.given(name, False) if name else None
    if changed is not None:
        without: EnvCost = changed.ask(measure_cost, subject.seed)
        subject.cost = without  # what the recommended line goes by
        tried = f"with {name}=False a step takes {duration_text(without.step)}"
        options = {"env_kwargs": {name: False}}
    else:
        tried, options = _side_by_side(subject), {}
    yield Finding("waiting", "warning", text, _remedy(name), tried, options, data)


def _remedy(name: str) -> str:
    if name:
        return f"pass {name}=False: nobody watches while it trains"
    return (
        "if it keeps real time, turn that off; if it waits for a server, give each env "
        'a thread or process of its own, as backend="auto" does'
    )


def _real_time_parameter(subject: Subject) -> str:
    """The parameter that has it wait, where a name gives it away."""
    values = subject.arguments
    return next((name for name in REAL_TIME_PARAMETERS if values.get(name) is True), "")


def _side_by_side(subject: Subject) -> str:
    """What several at once get done, which an env that computes could not."""
    alone = subject.ask(measure_pace, subject.seed, 0)
    paces = subject.ask_each(
        measure_pace, [(subject.seed, slot) for slot in range(ENVS_SIDE_BY_SIDE)]
    )
    both = sum(pace for pace in paces if isinstance(pace, float))
    return (
        f"{ENVS_SIDE_BY_SIDE} processes did {both / alone:.1f} times the steps of one"
    )


CHECK = Check("waiting", examine)
