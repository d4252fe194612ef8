"""Do equal seeds give equal episodes, whatever else draws from global generators?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from corral.engine.worker.seeds import disturbance_seed, seed_globals
from corral.engine.worker.shared_state import advanced_generators, generator_states
from corral.tools.doctor.driver import (
    EnvResponse,
    EpisodeDriver,
    first_difference,
    own_generators,
    run_alone,
)
from corral.tools.doctor.report import Finding, note, ok, warning
from corral.tools.doctor.subject import Subject

# In another process, and after a reset ------------------------------------------------


def measure_again(
    factory: Callable[[], Any], seed: int, moments: int
) -> list[EnvResponse]:
    """What one env does when it plays the same a second time."""
    with EpisodeDriver(factory, seed) as driver:
        driver.record(moments)
        driver.start_over()
        seed_globals(seed)
        return driver.record(moments)


def check_determinism(subject: Subject) -> Iterator[Finding]:
    """Two processes, then one env twice."""
    steps = subject.profile.steps
    runs = subject.ask_all(run_alone, [(subject.seed, 0, steps)] * 2)
    if apart := first_difference(*runs):
        yield warning(
            f"two runs with equal seeds and actions differ. {apart}",
            "draw from self.np_random, which reset(seed=...) seeds; not from the "
            "clock, nor from a generator without a seed. Sort sets: their order "
            "differs between processes, unless PYTHONHASHSEED is set",
        )
        return
    yield ok(f"two processes with equal seeds gave equal results ({steps} steps)")
    repeated = subject.ask(measure_again, subject.seed, steps)
    if apart := first_difference(runs[0], repeated):
        yield warning(
            f"an env that is reset with the same seed does not repeat itself. {apart}",
            "in reset(), set everything that step() changes; now an episode depends "
            "on the episodes before it",
            "a new env gave the same results both times",
        )
    else:
        yield ok("so did one env that was reset with the same seeds")


# Global generators --------------------------------------------------------------------
#
# They are changed before every call of the env. An env that draws from them then does
# something else; with generators of its own it repeats itself.


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
        seed_globals(disturbance_seed(noise, calls))
        with isolation.of(0) if isolated else nullcontext():
            yield

    with EpisodeDriver(factory, seed, around=disturbed) as driver:
        return driver.record(moments)


def check_generators(subject: Subject) -> Finding:
    """Whether it uses them, whether that matters, and whether isolate_rng helps."""
    steps = subject.profile.steps
    uses = subject.ask(measure_uses, subject.seed, steps)
    if not uses:
        return ok("did not use the global generators of random, numpy or torch")
    used = ", ".join(f"{name} (in {call})" for name, call in uses.items())
    ways = [(1, False), (2, False), (1, True), (2, True)]
    runs = subject.ask_all(
        measure_with_noise, [(subject.seed, steps, *way) for way in ways]
    )
    shared, own = first_difference(*runs[:2]), first_difference(*runs[2:])
    data = {"uses": uses}
    if not shared:
        text = f"draws from {used}, but its results do not depend on that"
        return note(text, data=data)
    subject.draws_globally = True
    text = f"draws from {used}: results depend on what else draws from it. {shared}"
    if own:
        remedy = f"draw from self.np_random; isolate_rng=True does not help ({own})"
        return note(text, remedy, data=data)
    return warning(
        text,
        "isolate_rng=True gives each slot its own",
        "with isolate_rng=True two such runs were equal",
        {"isolate_rng": True},
        data,
    )
