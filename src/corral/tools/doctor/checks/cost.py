"""What building, a reset and a step cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from corral.engine.faults.run_delay import own_time
from corral.engine.layout.durations import duration_text
from corral.tools.doctor.driver import EnvDriver, EpisodeDriver
from corral.tools.doctor.finding import Finding, note, ok
from corral.tools.doctor.subject import EnvCost, Subject

PLAY_SECONDS = 0.7
MAX_CALLS = 5000
MIN_RESETS = 3
LONG_RESET_SHARE = 0.25
"""Of the time, from which on resets hold a batch up."""


def measure(factory: Callable[[], Any], seed: int) -> EnvCost:
    """Play for a while."""
    began = time.perf_counter()
    driver = EpisodeDriver(factory, seed)
    construct = time.perf_counter() - began
    driver.advance()
    began, own = time.perf_counter(), own_time()
    steps, resets, computing = _played(driver.env_driver, began + PLAY_SECONDS)
    # While other programs had the cores the env did not wait for anything.
    undisturbed = max(0.01, (own_time() - own) / (time.perf_counter() - began))
    stepping, resetting = sum(steps), sum(resets)
    while len(resets) < MIN_RESETS:
        resets.append(_timed(lambda: driver.env_driver.reset(None, ""))[1])
    driver.close()
    return EnvCost(
        float(np.median(steps)),
        float(np.quantile(steps, 0.99)),
        float(np.median(resets)),
        construct,
        min(1.0, computing / (stepping * undisturbed)),
        resetting / (resetting + stepping),
    )


def _played(env: EnvDriver, until: float) -> tuple[list[float], list[float], float]:
    """Seconds of steps and resets, as vector envs do them, and the steps' CPU time."""
    steps: list[float] = []
    resets: list[float] = []
    computing, over = 0.0, False
    while time.perf_counter() < until and len(steps) < MAX_CALLS:
        if over:
            moment, passed = _timed(lambda: env.reset(None, ""))
            resets.append(passed)
        else:
            drawn = env.draw()
            worked = time.process_time()
            moment, passed = _timed(lambda: env.step(drawn, ""))  # noqa: B023
            computing += time.process_time() - worked
            steps.append(passed)
        over = moment.over
    return steps, resets, computing


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def examine(subject: Subject) -> Iterator[Finding]:
    """The figures, and a note where resets take long."""
    subject.cost = cost = subject.ask(measure, subject.seed)
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
