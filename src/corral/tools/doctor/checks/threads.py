"""May threads have one env each, and do two of them get more done than one?"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from corral.engine.executors.assign import usable_cores
from corral.engine.faults.report import error_for
from corral.errors import Fault
from corral.tools.doctor.checks.determinism import is_deterministic
from corral.tools.doctor.contract import Check
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.env_response import EnvResponse
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.runs import copied, run_alone
from corral.tools.doctor.subject import Subject, brief

THREADS_KEY = "corral.threads"
SWITCH_INTERVAL = 1e-5
"""Seconds after which another thread may have the GIL: races show sooner."""
TURN_SECONDS = 0.1
"""Seconds of one turn, where the gain is measured."""
ROUNDS = 3
WORTHWHILE_GAIN = 1.5
"""Times the work of one thread, from which on threads are worth a word."""


def measure_together(
    factory: Callable[[], Any], seed: int, moments: int
) -> tuple[list[list[EnvResponse]], str]:
    """Two threads, an env each, built and closed there; what they did, and failed."""
    runs: list[list[EnvResponse]] = [[], []]
    troubles: list[str] = []
    start = threading.Barrier(2)

    def life(slot: int) -> None:
        try:
            start.wait()
            driver = EpisodeDriver(factory, seed, slot)
            runs[slot] += [copied(moment) for moment in driver.play(moments)]
            driver.close()
        except BaseException as error:  # also what no thread may let out
            troubles.append(f"{type(error).__name__}: {error}")

    sys.setswitchinterval(SWITCH_INTERVAL)
    threads = [threading.Thread(target=life, args=(slot,)) for slot in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return runs, "; ".join(troubles)


def measure_gain(factory: Callable[[], Any], seed: int) -> float:
    """How many times as much two threads do as one; the lowest of the rounds."""
    drivers = [EpisodeDriver(factory, seed, slot) for slot in range(2)]
    gains = []
    with ThreadPoolExecutor(len(drivers)) as threads:
        for _ in range(ROUNDS):
            alone = [
                _pace(driver, time.perf_counter() + TURN_SECONDS) for driver in drivers
            ]
            until = [time.perf_counter() + TURN_SECONDS] * len(drivers)
            both = threads.map(_pace, drivers, until)
            gains.append(sum(pace / one for pace, one in zip(both, alone, strict=True)))
    for driver in drivers:
        driver.close()
    return min(gains)


def _pace(driver: EpisodeDriver, until: float) -> float:
    """Resets and steps per second, until then."""
    began, count = time.perf_counter(), 0
    while time.perf_counter() < until or not count:
        driver.advance()
        count += 1
    return count / (time.perf_counter() - began)


def examine(subject: Subject) -> Iterator[Finding]:
    """Whether they do the same as alone, then whether it is worth it."""
    if subject.draws_globally:
        yield Finding(
            "threads",
            "note",
            "threads would share the global generators it draws from; isolate_rng=True "
            "lets them take turns, one at a time",
            'do not ask for backend="thread"; nothing else uses threads',
            data={"threads": False},
        )
        return
    steps = subject.profile.steps
    (answer,) = subject.ask_each(measure_together, [(subject.seed, steps)])
    if isinstance(answer, Fault):
        yield _unsafe(subject, brief(answer))
        return
    runs, trouble = answer
    apart = "" if trouble else _apart(subject, runs)
    if trouble or apart:
        yield _unsafe(subject, trouble or apart)
        return
    yield from _gain(subject)


def _apart(subject: Subject, runs: list[list[EnvResponse]]) -> str:
    for slot, run in enumerate(runs):
        alone = subject.alone
        if slot or not alone:
            steps = subject.profile.steps
            (alone,) = subject.ask_each(run_alone, [(subject.seed, slot, steps)])
        if isinstance(alone, Fault):
            raise error_for(alone)
        found = first_difference(run, alone)
        if found:
            fair = is_deterministic(subject)
            return f"{found} (in a thread and alone)" if fair else ""
    return ""


def _unsafe(subject: Subject, text: str) -> Finding:
    declared = bool(subject.profile.metadata.get(THREADS_KEY))
    return Finding(
        "threads",
        "problem" if declared else "note",
        f"two threads with an env each disturb each other: {text}",
        f'take "{THREADS_KEY}" out of its metadata'
        if declared
        else 'do not ask for backend="thread"; nothing else uses threads',
        data={"threads": False},
    )


def _gain(subject: Subject) -> Iterator[Finding]:
    equal = subject.deterministic is not False  # else no two runs are
    text = "did the same as alone" if equal else "ran without an error"
    text = f"two threads with an env each {text}"
    if usable_cores() < 2:
        yield Finding("threads", "ok", text, data={"threads": True})
        return
    gain = subject.ask(measure_gain, subject.seed)
    data = {"threads": True, "gain": gain}
    text = f"{text}, and {gain:.2f} times the work of one"
    declared = bool(subject.profile.metadata.get(THREADS_KEY))
    if gain >= WORTHWHILE_GAIN and not declared:
        remedy = (
            f'its steps release the GIL: metadata["{THREADS_KEY}"] = True lets "auto" '
            "choose threads, which start at once and share memory"
        )
        yield Finding("threads", "note", text, remedy, data=data)
    else:
        held = "" if gain >= WORTHWHILE_GAIN else ": its steps hold the GIL"
        yield Finding("threads", "ok", f"{text}{held}", data=data)


CHECK = Check("threads", examine)
