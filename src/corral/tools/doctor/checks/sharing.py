"""May several envs share a process, and may threads have one env each?"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from corral.engine.adapters.factories import wrapped
from corral.engine.adapters.isolation import ISOLATION_KEY
from corral.engine.adapters.pettingzoo import multi_env
from corral.engine.executors.assign import usable_cores
from corral.engine.executors.contract import Assignment
from corral.engine.executors.process_sharing import NOT_REPEATABLE_REASON, try_sharing
from corral.engine.worker.commands import ProbeRequest, ShardOptions
from corral.engine.worker.isolation_probe import SharingAnswer
from corral.engine.worker.probe import FAILED_ONCE_REASON, UNREAD_REASON
from corral.engine.worker.probed_env import THREADS_KEY
from corral.errors import Fault
from corral.tools.doctor.checks.cost import pace
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EnvResponse, EpisodeDriver, run_alone
from corral.tools.doctor.report import Finding, note, ok, problem, warning
from corral.tools.doctor.subject import Subject, brief

# Isolation ----------------------------------------------------------------------------
#
# The question that a pool asks before it places its slots, asked more thoroughly: what
# the env says of itself does not count, it is played longer, and one is closed and
# another built on the way (see `engine.worker.isolation_probe`). Global generators are
# kept apart, since `isolate_rng` takes care of those.


def check_isolation(subject: Subject) -> Finding:
    """A process each, which is the remedy; then several in one."""
    steps = subject.profile.steps
    alone = [(subject.seed, slot, steps, True) for slot in range(3)]
    subject.ask_all(run_alone, alone)
    factory = subject.factory
    if subject.profile.kind != "gymnasium":
        factory = functools.partial(wrapped, factory, (multi_env,))
    assignment = Assignment(
        factories=[factory] * 2,
        shards=[range(2)],
        options=ShardOptions(subject.seed, isolate_rng=True),
        worker_init=_silence,
    )
    question = ProbeRequest(limit=subject.seconds, thorough=True)
    found = _judged(subject, try_sharing(assignment, [0, 1], question))
    subject.shares = found.severity in ("ok", "note")
    return found


def _silence() -> None:
    """Discard what the env prints and logs while it is tried."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    logging.disable()


def _judged(subject: Subject, answer: SharingAnswer) -> Finding:
    reason = answer.reason
    if answer.difference:
        reason += f". {answer.difference[0].upper()}{answer.difference[1:]}"
    if answer.safe:
        return _safe(subject)
    if answer.safe is False:
        return _unsafe(subject, reason)
    if answer.reason == NOT_REPEATABLE_REASON:
        return note(
            "two envs in one process ran without an error; whether they interfere "
            "with each other cannot be seen, since no two runs of one env are equal",
            "make it deterministic first",
        )
    if answer.reason.startswith(UNREAD_REASON):
        return _safe(subject, f"; but {answer.reason}")
    remedy = 'use isolation="slot", unless you know that sharing is safe'
    if answer.reason.startswith(FAILED_ONCE_REASON):
        remedy = (
            "run it alone for long; if it fails there as well, the other envs are not "
            'the cause; otherwise use isolation="slot"'
        )
    return warning(f"whether envs may share a process is not known: {reason}", remedy)


def _safe(subject: Subject, reservation: str = "") -> Finding:
    if subject.profile.metadata.get(ISOLATION_KEY) == "slot":
        reservation += "; but its metadata asks for a process each"
    return (note if reservation else ok)(
        "envs that shared a process, one closed early and one built late, did the "
        f"same as alone, bit for bit{reservation}",
        data={"isolation": "shared"},
    )


def _unsafe(subject: Subject, text: str) -> Finding:
    remedy = 'isolation="slot" gives each env a process of its own'
    if subject.profile.metadata.get(ISOLATION_KEY) == "shared":
        remedy += "; its metadata says that it may share one"
    return problem(
        f"not safe to share a process: {text}",
        remedy,
        f"in three processes with one env each, {subject.profile.steps} resets and "
        "steps ran without an error",
        {"isolation": "slot"},
        {"isolation": "slot"},
    )


# Threads ------------------------------------------------------------------------------

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
) -> list[list[EnvResponse]]:
    """Two threads, an env each, built and closed there; what they did."""
    sys.setswitchinterval(SWITCH_INTERVAL)

    def life(slot: int) -> list[EnvResponse]:
        with EpisodeDriver(factory, seed, slot) as driver:
            return driver.record(moments)

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(life, range(2)))


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


def check_threads(subject: Subject) -> Finding:
    """Whether they do the same as alone, then whether it is worth it."""
    data = {"threads": False}
    if subject.draws_globally:
        return note(
            "threads would share the global generators it draws from; with "
            "isolate_rng=True only one of them runs at a time",
            NOT_THREADS,
            data=data,
        )
    (runs,) = subject.ask_each(
        measure_together, [(subject.seed, subject.profile.steps)]
    )
    failed = isinstance(runs, Fault)
    apart, repeats = ("", True) if failed else _compared(subject, runs)
    declared = bool(subject.profile.metadata.get(THREADS_KEY))
    if not failed and not (apart and repeats):
        did = "did the same as alone" if repeats else "ran without an error"
        return _gain(subject, declared, did)
    trouble = brief(runs) if failed else f"{apart} (in a thread and alone)"
    text = f"two threads with an env each interfere with each other: {trouble}"
    if declared:
        return problem(text, f'remove "{THREADS_KEY}" from its metadata', data=data)
    return note(text, NOT_THREADS, data=data)


def _compared(subject: Subject, runs: list[list[EnvResponse]]) -> tuple[str, bool]:
    """Where a thread did something else than an env alone; whether envs repeat."""
    lives = [(subject.seed, slot, subject.profile.steps) for slot in range(len(runs))]
    alone = subject.ask_all(run_alone, lives)
    apart = next(filter(None, map(first_difference, runs, alone)), "")
    if not apart:
        return "", True
    again = subject.ask_all(run_alone, lives)
    return apart, not any(map(first_difference, alone, again))


def _gain(subject: Subject, declared: bool, did: str) -> Finding:
    text = f"two threads with an env each {did}"
    data: dict[str, Any] = {"threads": True}
    if usable_cores() < 2:
        return ok(text, data=data)
    gain = data["gain"] = subject.ask(measure_gain, subject.seed)
    text = f"{text}; two did {gain:.2f} times the work of one"
    if gain < WORTHWHILE_GAIN:
        return ok(f"{text}: its steps hold the GIL", data=data)
    if declared:
        return ok(text, data=data)
    remedy = (
        f'its steps release the GIL: with metadata["{THREADS_KEY}"] = True "auto" can '
        "choose threads, which start at once and share memory"
    )
    return note(text, remedy, data=data)
