"""Do equal seeds give equal episodes, in another process and after a reset?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from corral.engine.worker.seeds import seed_globals
from corral.errors import Fault
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EnvResponse, EpisodeDriver, run_alone
from corral.tools.doctor.finding import Finding, ok, warning
from corral.tools.doctor.subject import Subject


def measure_again(
    factory: Callable[[], Any], seed: int, moments: int
) -> list[EnvResponse]:
    """What one env does when it plays the same a second time."""
    with EpisodeDriver(factory, seed) as driver:
        driver.record(moments)
        driver.start_over()
        seed_globals(seed)
        return driver.record(moments)


def examine(subject: Subject) -> Iterator[Finding]:
    """Two processes, then one env twice."""
    steps = subject.profile.steps
    runs = subject.ask_all(run_alone, [(subject.seed, 0, steps)] * 2)
    subject.alone = runs[0]
    apart = first_difference(*runs)
    subject.deterministic = not apart
    if apart:
        yield _undecided(subject, apart)
        return
    yield ok(f"two processes with equal seeds gave equal results ({steps} steps)")
    repeated = subject.ask(measure_again, subject.seed, steps)
    apart = first_difference(subject.alone, repeated)
    if not apart:
        yield ok("so did one env that was reset with the same seeds")
        return
    yield warning(
        f"an env that is reset with the same seed does not repeat itself. {apart}",
        "in reset(), set everything that step() changes; now an episode depends on "
        "the episodes before it",
        "a new env gave the same results both times",
    )


def is_deterministic(subject: Subject) -> bool:
    """What this check has found; where it was not made, what it would have."""
    if subject.deterministic is None:
        subject.deterministic = _repeats(subject)
    return subject.deterministic


def _repeats(subject: Subject) -> bool:
    arguments = (subject.seed, 0, subject.profile.steps)
    runs = subject.ask_each(run_alone, [arguments] * 2)
    failed = any(isinstance(run, Fault) for run in runs)
    return not failed and not first_difference(*runs)


def _undecided(subject: Subject, apart: str) -> Finding:
    """That it differs; and whether the order of sets is why."""
    text = f"two runs with equal seeds and actions differ. {apart}"
    if _repeats_with_equal_hashes(subject):
        return warning(
            text,
            "it depends on the order of a set, which differs between processes: sort "
            "it, or set PYTHONHASHSEED=0",
            "with PYTHONHASHSEED=0 two runs were equal",
        )
    return warning(
        text,
        "draw from self.np_random, which reset(seed=...) seeds; not from the clock, "
        "nor from a generator without a seed",
    )


def _repeats_with_equal_hashes(subject: Subject) -> bool:
    """Whether it repeats itself in workers that hash text alike."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    try:
        return _repeats(subject)
    finally:
        del os.environ["PYTHONHASHSEED"]
        os.environ |= {} if before is None else {"PYTHONHASHSEED": before}
