"""The checks, in the order in which they are made.

A module of `checks/` holds one. It has two halves: `measure…(factory, …)` runs in a
worker beside the env and returns plain values; `examine(subject)` runs in the caller,
asks for that, and judges::

    def examine(subject: Subject) -> Iterator[Finding]:
        answer = subject.ask(measure)
        yield ok(f"{answer} …")

`examine` may let a FaultError through: the examination makes a finding of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from corral.tools.doctor.checks import (
    api,
    buffers,
    cost,
    determinism,
    generators,
    infos,
    isolation,
    leftovers,
    machine,
    memory,
    pickling,
    rendering,
    spaces,
    surroundings,
    threads,
    waiting,
    window,
)
from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Subject


@dataclass(frozen=True, slots=True)
class Check:
    """One question about an env, and the findings that answer it."""

    name: str
    examine: Callable[[Subject], Iterator[Finding]]
    seconds: float = 60.0
    """For each measurement."""
    needs_profile: bool = True
    """Whether an env must have been built and played once before."""


CHECKS = (
    Check("machine", machine.examine, needs_profile=False),
    Check("pickling", pickling.examine, needs_profile=False),
    Check("api", api.examine, needs_profile=False),
    Check("spaces", spaces.examine),
    Check("determinism", determinism.examine),
    Check("global RNG", generators.examine),
    Check("isolation", isolation.examine),
    Check("threads", threads.examine),
    Check("global state", surroundings.examine),
    Check("leftovers", leftovers.examine),
    Check("memory", memory.examine, seconds=90.0),
    Check("cost", cost.examine),
    Check("waiting", waiting.examine),
    Check("window", window.examine),
    Check("infos", infos.examine),
    Check("buffers", buffers.examine),
    Check("rendering", rendering.examine),
)
