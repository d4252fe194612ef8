"""Does it draw from `random`, `numpy.random` or torch's global generator?

The global generators are changed before every call of the env. An env that draws from
them then does something else; with generators of its own it repeats itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from corral.engine.worker.seeds import episode_seed, seed_globals
from corral.engine.worker.shared_state import advanced_generators, generator_states
from corral.tools.doctor.differences import first_difference
from corral.tools.doctor.driver import EnvResponse, EpisodeDriver, own_generators
from corral.tools.doctor.finding import Finding, note, ok, warning
from corral.tools.doctor.subject import Subject


def measure_uses(factory: Callable[[], Any], seed: int, moments: int) -> dict[str, str]:
    """Generator -> the first call of the env that advanced it."""
    found: dict[str, str] = {}
    call = "the constructor"

    @contextmanager
    def watched() -> Iterator[None]:
        before = generator_states()
        yield
        for name in advanced_generators(before, generator_states()):
            found.setdefault(name, call)

    with EpisodeDriver(factory, seed, around=watched) as driver:
        call = "reset"
        for moment in driver.play(moments):
            call = "reset" if moment.over else "step"
    return found


def measure_with_noise(
    factory: Callable[[], Any], seed: int, moments: int, noise: int, isolated: bool
) -> list[EnvResponse]:
    """A run whose global generators are reseeded before every call."""
    isolation, calls = own_generators(seed), 0

    @contextmanager
    def disturbed() -> Iterator[None]:
        nonlocal calls
        calls += 1
        seed_globals(episode_seed(noise, calls))
        with isolation.of(0) if isolated else nullcontext():
            yield

    with EpisodeDriver(factory, seed, around=disturbed) as driver:
        return driver.record(moments)


def examine(subject: Subject) -> Iterator[Finding]:
    """Whether it uses them, whether that matters, and whether isolate_rng helps."""
    steps = subject.profile.steps
    uses = subject.ask(measure_uses, subject.seed, steps)
    if not uses:
        yield ok("did not use the global generators of random, numpy or torch")
        return
    used = ", ".join(f"{name} (in {call})" for name, call in uses.items())
    ways = [(1, False), (2, False), (1, True), (2, True)]
    runs = subject.ask_all(
        measure_with_noise, [(subject.seed, steps, *way) for way in ways]
    )
    shared, own = first_difference(*runs[:2]), first_difference(*runs[2:])
    data = {"uses": uses}
    if not shared:
        text = f"draws from {used}, but its results do not depend on that"
        yield note(text, data=data)
        return
    subject.draws_globally = True
    text = f"draws from {used}: results depend on what else draws from it. {shared}"
    if own:
        remedy = f"draw from self.np_random; isolate_rng=True does not help ({own})"
        yield note(text, remedy, data=data)
        return
    yield warning(
        text,
        "isolate_rng=True gives each slot its own",
        "with isolate_rng=True two such runs were equal",
        {"isolate_rng": True},
        data,
    )
