"""Do equal seeds give equal episodes, in another process and after a reset?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from corral.engine.faults.report import error_for
from corral.engine.worker.seeds import seed_globals
from corral.errors import Fault
from corral.tools.doctor.contract import Check
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.env_response import EnvResponse
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.runs import copied, run_alone
from corral.tools.doctor.subject import Subject

HASH_SEED_VARIABLE = "PYTHONHASHSEED"


def measure_again(
    factory: Callable[[], Any], seed: int, moments: int
) -> list[EnvResponse]:
    """What one env does when it is told to do the same a second time."""
    driver = EpisodeDriver(factory, seed)
    for _ in driver.play(moments):
        pass
    driver.start_over()
    seed_globals(seed)
    found = [copied(moment) for moment in driver.play(moments)]
    driver.close()
    return found


def examine(subject: Subject) -> Iterator[Finding]:
    """Two processes, then one env twice."""
    steps = subject.profile.steps
    runs = subject.ask_each(run_alone, [(subject.seed, 0, steps)] * 2)
    for answer in runs:
        if isinstance(answer, Fault):
            raise error_for(answer)
    subject.alone, again = runs
    apart = first_difference(subject.alone, again)
    subject.deterministic = not apart
    if apart:
        yield _undecided(subject, apart)
        return
    text = f"two processes with equal seeds agreed, {steps} resets and steps long"
    yield Finding("determinism", "ok", text)
    repeated = subject.ask(measure_again, subject.seed, steps)
    apart = first_difference(subject.alone, repeated)
    if apart:
        yield Finding(
            "determinism",
            "warning",
            f"an env that is reset with the same seed does something else. {apart}",
            "set everything in reset() that step() changes: as it is, an episode "
            "depends on those before it",
            "built anew, it did the same both times",
        )
    else:
        yield Finding("determinism", "ok", "so did one env that was reset to them")


def is_deterministic(subject: Subject) -> bool:
    """What this check has found; where it was not made, what it would have."""
    if subject.deterministic is None:
        arguments = (subject.seed, 0, subject.profile.steps)
        runs = subject.ask_each(run_alone, [arguments] * 2)
        failed = any(isinstance(run, Fault) for run in runs)
        subject.deterministic = not failed and not first_difference(*runs)
    return subject.deterministic


def _undecided(subject: Subject, apart: str) -> Finding:
    """That it differs; and whether the order of sets is why."""
    remedy = (
        "draw from self.np_random, which reset(seed=...) seeds; not from the clock, "
        "nor from a generator made without a seed"
    )
    tried = ""
    with _equal_hashes():
        runs = subject.ask_each(
            run_alone, [(subject.seed, 0, subject.profile.steps)] * 2
        )
    if not any(isinstance(run, Fault) for run in runs) and not first_difference(*runs):
        tried = "with PYTHONHASHSEED=0 two runs were equal"
        remedy = (
            "it depends on the order of a set, which is another in every process: sort "
            "it, or set PYTHONHASHSEED=0"
        )
    text = f"two runs with equal seeds and actions differ. {apart}"
    return Finding("determinism", "warning", text, remedy, tried)


@contextmanager
def _equal_hashes() -> Iterator[None]:
    """Workers that are started meanwhile hash text alike."""
    before = os.environ.get(HASH_SEED_VARIABLE)
    os.environ[HASH_SEED_VARIABLE] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[HASH_SEED_VARIABLE]
        else:
            os.environ[HASH_SEED_VARIABLE] = before


CHECK = Check("determinism", examine)
