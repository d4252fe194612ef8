"""May threads have one env each, and do two of them get more done than one?"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from corral.engine.executors.assign import usable_cores
from corral.engine.worker.probed_env import THREADS_KEY
from corral.errors import Fault
from corral.tools.doctor.checks.determinism import is_deterministic
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EnvResponse, EpisodeDriver, run_alone
from corral.tools.doctor.finding import Finding, note, ok, problem
from corral.tools.doctor.subject import Subject, brief

SWITCH_INTERVAL = 1e-5
"""Seconds after which another thread may have the GIL: races show sooner."""
TURN_SECONDS = 0.1
"""Seconds of one turn, where the gain is measured."""
ROUNDS = 3
WORTHWHILE_GAIN = 1.5
"""Times the work of one thread, from which on threads are recommended."""
NOT_THREADS = 'do not use backend="thread"; "auto" does not choose it either'


def measure_together(
    factory: Callable[[], Any], seed: int, moments: int
) -> tuple[list[list[EnvResponse]], str]:
    """Two threads, an env each, built and closed there; what they did, and failed."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    runs: list[list[EnvResponse]] = []
    troubles = []

    def life(slot: int) -> list[EnvResponse]:
        with EpisodeDriver(factory, seed, slot) as driver:
            return driver.record(moments)

    with ThreadPoolExecutor(2) as threads:
        for future in [threads.submit(life, slot) for slot in range(2)]:
            error = future.exception()
            if error is None:
                runs.append(future.result())
            else:
                troubles.append(f"{type(error).__name__}: {error}")
    return runs, "; ".join(troubles)


def measure_gain(factory: Callable[[], Any], seed: int) -> float:
    """How many times as much two threads do as one; the lowest of the rounds."""
    drivers = [EpisodeDriver(factory, seed, slot) for slot in range(2)]
    gains = []
    with ThreadPoolExecutor(len(drivers)) as threads:
        for _ in range(ROUNDS):
            alone = [pace(driver, TURN_SECONDS) for driver in drivers]
            both = threads.map(pace, drivers, [TURN_SECONDS] * len(drivers))
            gains.append(sum(pace / one for pace, one in zip(both, alone, strict=True)))
    for driver in drivers:
        driver.close()
    return min(gains)


def pace(driver: EpisodeDriver, seconds: float) -> float:
    """Resets and steps per second, for so long."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds or not count:
        driver.advance()
        count += 1
    return count / (time.perf_counter() - began)


def examine(subject: Subject) -> Iterator[Finding]:
    """Whether they do the same as alone, then whether it is worth it."""
    if subject.draws_globally:
        yield note(
            "threads would share the global generators it draws from; with "
            "isolate_rng=True only one of them runs at a time",
            NOT_THREADS,
            data={"threads": False},
        )
        return
    steps = subject.profile.steps
    (answer,) = subject.ask_each(measure_together, [(subject.seed, steps)])
    if isinstance(answer, Fault):
        answer = [], brief(answer)
    runs, trouble = answer
    trouble = trouble or _difference(subject, runs)
    if trouble:
        text = f"two threads with an env each interfere with each other: {trouble}"
        data = {"threads": False}
        if _declares_threads(subject):
            remedy = f'remove "{THREADS_KEY}" from its metadata'
            yield problem(text, remedy, data=data)
        else:
            yield note(text, NOT_THREADS, data=data)
        return
    yield _gain(subject)


def _declares_threads(subject: Subject) -> bool:
    return bool(subject.profile.metadata.get(THREADS_KEY))


def _difference(subject: Subject, runs: list[list[EnvResponse]]) -> str:
    """Where a thread did something else than an env alone; "" if no run repeats."""
    steps = subject.profile.steps
    for slot, run in enumerate(runs):
        alone = subject.alone if slot == 0 else []
        found = first_difference(
            run, alone or subject.ask(run_alone, subject.seed, slot, steps)
        )
        if found:
            fair = is_deterministic(subject)
            return f"{found} (in a thread and alone)" if fair else ""
    return ""


def _gain(subject: Subject) -> Finding:
    equal = subject.deterministic is not False  # else no two runs are
    text = "did the same as alone" if equal else "ran without an error"
    text = f"two threads with an env each {text}"
    data: dict[str, Any] = {"threads": True}
    if usable_cores() < 2:
        return ok(text, data=data)
    gain = data["gain"] = subject.ask(measure_gain, subject.seed)
    text = f"{text}; two did {gain:.2f} times the work of one"
    if gain < WORTHWHILE_GAIN:
        return ok(f"{text}: its steps hold the GIL", data=data)
    if _declares_threads(subject):
        return ok(text, data=data)
    remedy = (
        f'its steps release the GIL: with metadata["{THREADS_KEY}"] = True "auto" can '
        "choose threads, which start at once and share memory"
    )
    return note(text, remedy, data=data)
