"""Makes a program that fails smaller: one thing after the other becomes as usual."""

from __future__ import annotations

import select
from collections.abc import Iterator
from dataclasses import fields, replace

from tests.soak.programs.kinds import Kind
from tests.soak.programs.program import Program
from tests.soak.programs.supervisor import ProgramResult, ProgramRunner

MAX_TRIES = 25
"""Programs that are tried, at most."""
FIXED = ("seed", "api", "kind", "slots", "steps")


def shrunk(verdict: ProgramResult, limit: float) -> Program:
    """A program no bigger that fails in the same way."""
    runner, smallest, left = ProgramRunner(limit), verdict.program, MAX_TRIES
    try:
        candidates = _smaller(smallest)
        while left:
            candidate = next(candidates, None)
            if candidate is None:
                break
            left -= 1
            runner.give(candidate)
            if _waited(runner).sort == verdict.sort:
                smallest = candidate
                candidates = _smaller(smallest)
    finally:
        runner.close()
    return smallest


def _waited(runner: ProgramRunner) -> ProgramResult:
    while not runner.late():
        if select.select([runner.output], [], [], 0.2)[0]:
            return runner.answered()
    return runner.stopped()


def _smaller(program: Program) -> Iterator[Program]:
    """The program with one thing less, for every thing."""
    if program.steps > 4:
        yield replace(program, steps=program.steps // 2)
    if program.slots > 1:
        fewer = program.slots - 1
        workers = None if program.workers is None else min(program.workers, fewer)
        yield replace(program, slots=fewer, workers=workers)
    usual = Program(0)
    for field in fields(program):
        value = getattr(usual, field.name)
        if field.name not in FIXED and getattr(program, field.name) != value:
            if field.name == "backend" and not program.kind.is_plain:
                continue
            yield replace(program, **{field.name: value})
    for field in fields(program.kind):
        value = getattr(Kind(), field.name)
        if getattr(program.kind, field.name) != value:
            yield replace(program, kind=replace(program.kind, **{field.name: value}))
