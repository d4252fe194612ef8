"""What a check is: a question about an env, and the findings that answer it.

A module of `checks/` holds one. It has two halves: `measure…(factory, …)` runs in a
worker beside the env and returns plain values; `examine(subject)` runs in the caller,
asks for that, and judges::

    def examine(subject: Subject) -> Iterator[Finding]:
        answer = subject.ask(measure)
        yield Finding("isolation", "ok", f"{answer} …")

    CHECK = Check("isolation", examine)

`examine` may let a FaultError through: the examination makes a finding of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from corral.tools.doctor.finding import Finding
from corral.tools.doctor.subject import Subject


@dataclass(frozen=True, slots=True)
class Check:
    """One question, asked in its place."""

    name: str
    examine: Callable[[Subject], Iterator[Finding]]
    seconds: float = 60.0
    """For each thing it has measured."""
    needs_profile: bool = True
    """Whether it has no meaning unless an env was built and played once."""
