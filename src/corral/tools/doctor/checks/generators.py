"""Does it draw from `random`, `numpy.random` or torch's global generator?

What the global generators hold is changed before every call of the env. One that draws
from them then does something else; with generators of its own it does the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from corral.engine.faults.report import error_for
from corral.engine.worker.seeds import episode_seed, seed_globals
from corral.engine.worker.shared_state import advanced_generators, generator_states
from corral.errors import Fault
from corral.tools.doctor.contract import Check
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.env_response import EnvResponse
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.runs import copied, own_generators
from corral.tools.doctor.subject import Subject

GENERATOR_NAMES = ("random", "numpy.random", "torch")


def measure_uses(factory: Callable[[], Any], seed: int, moments: int) -> dict[str, str]:
    """Generator -> the first call of the env that moved it."""
    found: dict[str, str] = {}
    call = "the constructor"

    @contextmanager
    def watched() -> Iterator[None]:
        before = generator_states()
        yield
        for name in advanced_generators(before, generator_states()):
            found.setdefault(name, call)

    driver = EpisodeDriver(factory, seed, around=watched)
    call = "reset"
    for _ in range(moments):
        moment = driver.advance()
        call = "reset" if moment.over else "step"
    driver.close()
    return found


def measure_with_noise(
    factory: Callable[[], Any], seed: int, moments: int, noise: int, isolated: bool
) -> list[EnvResponse]:
    """A run with global generators that somebody else moves all the time."""
    isolation, calls = own_generators(seed), 0

    @contextmanager
    def disturbed() -> Iterator[None]:
        nonlocal calls
        calls += 1
        seed_globals(episode_seed(noise, calls))
        if isolated:
            with isolation.of(0):
                yield
        else:
            yield

    driver = EpisodeDriver(factory, seed, around=disturbed)
    found = [copied(moment) for moment in driver.play(moments)]
    driver.close()
    return found


def examine(subject: Subject) -> Iterator[Finding]:
    """Whether it uses them, whether that matters, and whether isolate_rng helps."""
    steps = subject.profile.steps
    uses = subject.ask(measure_uses, subject.seed, steps)
    if not uses:
        yield Finding(
            "global RNG", "ok", f"none of {', '.join(GENERATOR_NAMES)} was moved"
        )
        return
    used = ", ".join(f"{name} (in {call})" for name, call in uses.items())
    ways = [(1, False), (2, False), (1, True), (2, True)]
    runs = subject.ask_each(
        measure_with_noise, [(subject.seed, steps, *way) for way in ways]
    )
    for answer in runs:
        if isinstance(answer, Fault):
            raise error_for(answer)
    shared, own = first_difference(*runs[:2]), first_difference(*runs[2:])
    data = {"uses": uses}
    if not shared:
        text = f"moves {used}, but what it does never depends on them"
        yield Finding("global RNG", "note", text, data=data)
        return
    subject.draws_globally = True
    cured = "" if own else "with isolate_rng=True two such runs were equal"
    yield Finding(
        "global RNG",
        "warning" if cured else "note",
        f"draws from {used}: what it does depends on who else draws. {shared}",
        "isolate_rng=True gives each slot its own"
        if cured
        else f"draw from self.np_random; isolate_rng=True does not help ({own})",
        cured,
        {"isolate_rng": True} if cured else {},
        data,
    )


CHECK = Check("global RNG", examine)
