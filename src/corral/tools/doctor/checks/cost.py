"""What building, a reset and a step cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corral.engine.faults.run_delay import run_delay
from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.duration_text import duration_text
from corral.tools.doctor.env_response import EnvDriver, EnvResponse
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import EnvCost, Subject

PLAY_SECONDS = 0.7
MAX_CALLS = 5000
MIN_RESETS = 3
LONG_RESET_SHARE = 0.25
"""Of the time, from which on resets hold a batch up."""


@dataclass(slots=True)
class _Times:
    """Seconds of single calls, and what the steps computed of theirs."""

    step: list[float] = field(default_factory=list)
    reset: list[float] = field(default_factory=list)
    computing: float = 0.0


def measure(factory: Callable[[], Any], seed: int) -> EnvCost:
    """Play for a while."""
    began = time.perf_counter()
    driver = EpisodeDriver(factory, seed)
    construct = time.perf_counter() - began
    driver.advance()
    began, queued = time.perf_counter(), run_delay("thread-self") or 0.0
    times = _played(driver.env_driver, began + PLAY_SECONDS)
    # In which others had the cores; the env did not wait for anything.
    queued = (run_delay("thread-self") or 0.0) - queued
    undisturbed = max(0.01, 1.0 - queued / (time.perf_counter() - began))
    stepping, resetting = sum(times.step), sum(times.reset)
    while len(times.reset) < MIN_RESETS:
        times.reset.append(_timed(lambda: driver.env_driver.reset(None, ""))[1])
    driver.close()
    return EnvCost(
        construct,
        float(np.median(times.reset)),
        float(np.median(times.step)),
        float(np.quantile(times.step, 0.99)),
        min(1.0, times.computing / (stepping * undisturbed)),
        resetting / (resetting + stepping),
        len(times.step),
    )


def _played(env_driver: EnvDriver, until: float) -> _Times:
    """Episode after episode; each reset bare, as vector envs do it."""
    times, over = _Times(), False
    while time.perf_counter() < until and len(times.step) < MAX_CALLS:
        if over:
            moment, passed = _timed(lambda: env_driver.reset(None, ""))
            times.reset.append(passed)
        else:
            drawn = env_driver.draw()
            worked = time.process_time()
            moment, passed = _timed(lambda: env_driver.step(drawn, ""))  # noqa: B023
            times.computing += time.process_time() - worked
            times.step.append(passed)
        over = moment.over
    return times


def _timed(call: Callable[[], EnvResponse]) -> tuple[EnvResponse, float]:
    began = time.perf_counter()
    moment = call()
    return moment, time.perf_counter() - began


def examine(subject: Subject) -> Iterator[Finding]:
    """The figures, and a word where resets take long."""
    cost: EnvCost = subject.ask(measure, subject.seed)
    subject.cost = cost
    yield Finding(
        "cost",
        "ok",
        f"a step takes {duration_text(cost.step)} (1 in 100 over "
        f"{duration_text(cost.slowest)}), a "
        f"reset {duration_text(cost.reset)}, the constructor "
        f"{duration_text(cost.construct)}",
        data={
            "step": cost.step,
            "slowest": cost.slowest,
            "reset": cost.reset,
            "construct": cost.construct,
            "computing": cost.computing,
            "resetting": cost.resetting,
        },
    )
    if cost.resetting > LONG_RESET_SHARE and cost.reset > 20 * cost.step:
        yield Finding(
            "cost",
            "note",
            f"{cost.resetting:.0%} of the time goes into resets, each as long as "
            f"{cost.reset / cost.step:.0f} steps: a whole batch waits for it",
            "take what is ready: pool.recv(min_slots=...), see the guide on async",
        )


CHECK = Check("cost", examine)
