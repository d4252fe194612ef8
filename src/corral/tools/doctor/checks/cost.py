"""What building, a reset and a step cost, and whether a step waits or computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from corral.engine.faults.process_usage import own_time
from corral.engine.layout.durations import duration_text
from corral.engine.worker.probe import WAITING_CPU_SHARE
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.report import Finding, note, ok, warning
from corral.tools.doctor.subject import EnvCost, Subject

PLAY_SECONDS = 0.7
MAX_CALLS = 5000
MIN_RESETS = 3
# Of the time, from which on resets hold a batch up.
LONG_RESET_SHARE = 0.25


def measure_cost(factory: Callable[[], Any], seed: int) -> EnvCost:
    """Play for a while, with resets as vector envs make them."""
    clock = time.perf_counter
    began = clock()
    driver = EpisodeDriver(factory, seed)
    construct = clock() - began
    steps, resets, computing, over = list[float](), list[float](), 0.0, False

    def timed_reset() -> bool:
        mark = clock()
        driver.reset(None)
        resets.append(clock() - mark)
        return False

    driver.advance()
    began, own = clock(), own_time()
    while clock() < began + PLAY_SECONDS and len(steps) < MAX_CALLS:
        if over:
            over = timed_reset()
            continue
        drawn = driver.draw()
        worked, mark = time.process_time(), clock()
        over = driver.step(drawn).over
        steps.append(clock() - mark)
        computing += time.process_time() - worked
    # While other programs had the cores the env did not wait for anything.
    undisturbed = max(0.01, (own_time() - own) / (clock() - began))
    stepping, resetting = sum(steps), sum(resets)
    while len(resets) < MIN_RESETS:
        timed_reset()
    driver.close()
    return EnvCost(
        float(np.median(steps)),
        float(np.quantile(steps, 0.99)),
        float(np.median(resets)),
        construct,
        min(1.0, computing / (stepping * undisturbed)),
        resetting / (resetting + stepping),
    )


def check_cost(subject: Subject) -> Iterator[Finding]:
    """The figures, and a note where resets take long."""
    subject.cost = cost = subject.ask(measure_cost, subject.seed)
    names = ("step", "slowest", "reset", "construct")
    step, slowest, reset, construct = (duration_text(getattr(cost, n)) for n in names)
    yield ok(
        f"a step takes {step} (1 in 100 over {slowest}), a reset {reset}, the "
        f"constructor {construct}",
        data=asdict(cost),
    )
    if cost.resetting > LONG_RESET_SHARE and cost.reset > 20 * cost.step:
        yield note(
            f"{cost.resetting:.0%} of the time goes into resets, each as long as "
            f"{cost.reset / cost.step:.0f} steps; a whole batch waits for each",
            "step the envs that are ready: pool.recv(min_slots=...), see the guide on "
            "async",
        )


# Waiting: for real time to pass, for a server -----------------------------------------

# Seconds of a step that are worth a look.
LONG_STEP_SECONDS = 200e-6
# Parameters that are true where a step lasts as long as in the real world.
REAL_TIME_PARAMETERS = (
    *("regulate_frequency", "real_time", "realtime", "use_real_time"),
    *("use_realtime", "run_in_real_time", "enforce_real_time"),
)
ENVS_SIDE_BY_SIDE = 4
PACE_SECONDS = 0.7


def measure_pace(factory: Callable[[], Any], seed: int, slot: int) -> float:
    """Resets and steps per second."""
    with EpisodeDriver(factory, seed, slot) as driver:
        driver.advance()
        return pace(driver.advance, PACE_SECONDS)


def pace(advance: Callable[[], object], seconds: float) -> float:
    """Calls per second, for so long."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds or not count:
        advance()
        count += 1
    return count / (time.perf_counter() - began)


def check_waiting(subject: Subject) -> Finding:
    """Whether it waits, and what may turn that off."""
    cost = subject.cost or subject.ask(measure_cost, subject.seed)
    data = {"computing": cost.computing}
    if cost.computing >= WAITING_CPU_SHARE or cost.step < LONG_STEP_SECONDS:
        return ok(f"computes for {cost.computing:.0%} of a step", data=data)
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
        return warning(text, remedy, _side_by_side(subject), data=data)
    subject.cost = changed.ask(measure_cost, subject.seed)  # for the recommended line
    tried = f"with {name}=False a step takes {duration_text(subject.cost.step)}"
    return warning(text, remedy, tried, {"env_kwargs": {name: False}}, data)


def _side_by_side(subject: Subject) -> str:
    """What several at once get done, which an env that computes could not."""
    slots = [(subject.seed, slot) for slot in range(ENVS_SIDE_BY_SIDE)]
    alone = subject.ask(measure_pace, *slots[0])
    paces = subject.ask_each(measure_pace, slots)
    both = sum(one for one in paces if isinstance(one, float))
    return (
        f"{ENVS_SIDE_BY_SIDE} processes did {both / alone:.1f} times the steps of one"
    )
