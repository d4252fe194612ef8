"""`python -m tests.soak.programs`: draw programs, play them, tell what failed."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.soak.programs.draw import APIS, draw
from tests.soak.programs.program import Program
from tests.soak.programs.shrink import shrunk
from tests.soak.programs.supervisor import PROGRAM_SECONDS, ProgramResult, run

MAX_SHOWN_FAILURES = 20
"""Failures that are shown in full."""
MAX_MISTAKE_CHARACTERS = 6000
"""Characters of a mistake that are shown."""


def main(arguments: list[str] | None = None) -> int:
    """Play; returns the exit status."""
    options = _parsed(arguments)
    if options.program:
        programs = [Program.from_json(options.program)]
    elif options.only:
        programs = [draw(seed, _apis(options.apis)) for seed in options.only]
    else:
        seed = random.SystemRandom().getrandbits(31)
        seed = seed if options.seed is None else options.seed
        print(f"{options.count} programs, --seed {seed}", flush=True)
        programs = [draw(seed + n, _apis(options.apis)) for n in range(options.count)]
    began = time.monotonic()
    verdicts = list(_summary(run(programs, options.jobs, options.limit), options))
    print(_table(verdicts, time.monotonic() - began))
    return 1 if any(verdict.mistakes for verdict in verdicts) else 0


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.programs")
    parser.add_argument("--count", type=int, default=1000, help="how many programs")
    parser.add_argument("--seed", type=int, help="of the first one; drawn if not given")
    parser.add_argument("--only", type=int, nargs="+", metavar="SEED", help="these")
    parser.add_argument("--program", metavar="JSON", help="a program written down")
    parser.add_argument("--apis", default="", help="comma-separated: these alone")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--limit", type=float, default=PROGRAM_SECONDS, help="seconds for each"
    )
    parser.add_argument("--no-shrink", action="store_true", help="show as drawn")
    return parser.parse_args(arguments)


def _apis(names: str) -> dict[str, int] | None:
    return {name: APIS.get(name, 1) for name in names.split(",")} if names else None


# Telling ------------------------------------------------------------------------------


def _summary(
    verdicts: Iterator[ProgramResult], options: argparse.Namespace
) -> Iterator[ProgramResult]:
    """Say what failed as soon as it is known."""
    failures = 0
    for verdict in verdicts:
        if verdict.mistakes:
            failures += 1
            print(
                _failure(verdict, options, failures <= MAX_SHOWN_FAILURES), flush=True
            )
        yield verdict


def _failure(verdict: ProgramResult, options: argparse.Namespace, whole: bool) -> str:
    program = verdict.program
    again = f"python -m tests.soak.programs --only {program.seed}"
    if options.apis:
        again += f" --apis {options.apis!r}"
    if options.program:
        again = f"python -m tests.soak.programs --program '{program.to_json()}'"
    lines = [f"FAILED {program.seed}: {program}", f"  again: {again}"]
    if not whole:
        return "\n".join([*lines, f"  {verdict.mistakes[0].splitlines()[0]}"])
    lines += [
        f"  {mistake[:MAX_MISTAKE_CHARACTERS]}" for mistake in verdict.mistakes[:3]
    ]
    if not (options.no_shrink or options.program or verdict.sort == "hang"):
        smaller = shrunk(verdict, options.limit)
        lines += [f"  smaller: {smaller}", f"  --program '{smaller.to_json()}'"]
    return "\n".join(lines)


def _table(verdicts: list[ProgramResult], seconds: float) -> str:
    failed = [verdict for verdict in verdicts if verdict.mistakes]
    lines = [f"{'api':26}{'programs':>9}{'failed':>8}"]
    played = Counter(verdict.program.api for verdict in verdicts)
    wrong = Counter(verdict.program.api for verdict in failed)
    lines += [f"{api:26}{n:9}{wrong[api]:8}" for api, n in sorted(played.items())]
    backends = Counter(verdict.program.backend for verdict in verdicts)
    lines += [f"{'on ' + name:26}{n:9}" for name, n in sorted(backends.items())]
    sorts = Counter(f"{one.sort}, {_trait(one.program)}" for one in failed)
    lines += [f"{name:60}{count:4}" for name, count in sorts.most_common()]
    lines += [f"{len(verdicts)} programs, {len(failed)} failed, {seconds:.0f} s"]
    return "\n".join(lines)


def _trait(program: Program) -> str:
    """What is special about the environments of a program, in a word."""
    kind = program.kind
    if kind.forks != "never":
        return "forks"
    if kind.replaces != "method":
        return "replaces itself"
    if kind.state != "own":
        return "shared state"
    if kind.fault != "none":
        return f"fault, {program.on_fault}"
    return f"infos {kind.infos}" if kind.infos != "none" else "plain"


if __name__ == "__main__":
    sys.exit(main())
