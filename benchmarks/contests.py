"""Contests: one piece of work, who does it, what is claimed of them, and the report.

Shared by the scripts that race vector envs; how turns are taken and timed is in
`corral.tools.bench.measure`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import psutil
from races import Runner, race

from corral.tools.bench.measure import Rates

MIB = 1024 * 1024

Factory = Callable[[], gymnasium.Env]


@dataclass(frozen=True)
class Entrant:
    """Who can take part: `build(factory, slots)` makes its runner."""

    title: str
    build: Callable[[Factory, int], Runner]


Entrants = Mapping[str, Entrant]
"""By name, in the order of building."""


@dataclass(frozen=True)
class Claim:
    """`name` is at least `target` times as fast as `over`."""

    name: str
    over: str
    target: float


@dataclass(frozen=True)
class Contest:
    """One piece of work, who does it, and what is claimed of them."""

    key: str
    title: str
    factory: Callable[[], Factory]
    """Makes the env's factory; called late, since it may calibrate."""
    slots: int
    names: tuple[str, ...]
    """Of the entrants; `name@slots` for another number of slots than the rest."""
    claims: tuple[Claim, ...]
    cores: int = 1
    """Left out on machines with fewer."""


@dataclass(frozen=True)
class Verdict:
    """One claim, measured."""

    work: str
    claim: str
    measured: float
    target: float
    met: bool
    unit: str = "×"


def title_of(entrants: Entrants, name: str) -> str:
    kind, _, slots = name.partition("@")
    title = entrants[kind].title
    return f"{title} ×{slots}" if slots else title


def run_contest(
    contest: Contest, entrants: Entrants, rounds: int, turn_seconds: float
) -> tuple[dict[str, Rates], list[Verdict], str]:
    """Build everybody, race them, close them; rates, verdicts and our layout."""
    factory = contest.factory()
    order = list(entrants)
    with ExitStack() as stack:
        runners: dict[str, Runner] = {}
        for name in sorted(contest.names, key=lambda n: order.index(n.split("@")[0])):
            kind, _, slots = name.partition("@")
            built = entrants[kind].build(factory, int(slots or contest.slots))
            runners[name] = built
            stack.callback(built.close)
        rates = race(
            runners,
            rounds=rounds,
            turn_seconds=turn_seconds,
            on_turn=lambda name: note("."),
        )
        layout = str(getattr(runners["auto"].envs, "layout", ""))
    verdicts = [
        judge(contest.title, claim, rates, entrants)
        for claim in contest.claims
        if claim.over in rates
    ]
    return rates, verdicts, layout


def judge(
    work: str, claim: Claim, rates: Mapping[str, Rates], entrants: Entrants
) -> Verdict:
    measured = rates[claim.name].over(rates[claim.over])
    names = (title_of(entrants, name) for name in (claim.name, claim.over))
    met = measured >= claim.target
    return Verdict(work, " over ".join(names), measured, claim.target, met)


# --- start-up and memory ----------------------------------------------------------


def in_fresh_process(script: str, probe: str, argument: str) -> dict[str, float]:
    """What a script answers to `--probe PROBE ARGUMENT`: a line of JSON, its last."""
    command = [sys.executable, script, "--probe", probe, argument]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr}")
    answer: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return answer


def memory_of_tree() -> float:
    """MiB of this process and everything it started."""
    parent = psutil.Process()
    tree = [parent, *parent.children(recursive=True)]
    return sum(pss(process.pid) for process in tree) / MIB


def pss(pid: int) -> int:
    """The proportional set size: shared pages count once over all who share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no Pss line for process {pid}")


# --- the report -------------------------------------------------------------------


def note(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def report_rates(
    contest: Contest, rates: Mapping[str, Rates], layout: str, entrants: Entrants
) -> str:
    rows = [
        (title_of(entrants, name), f"{one.median:,.0f}", f"±{one.spread:.0%}")
        for name, one in rates.items()
    ]
    body = table(("runner", "steps/s", "spread"), rows)
    return f"### {contest.title}\n\n{body}\n\nLayout chosen: {layout}\n"


def report_verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = []
    for one in verdicts:
        bound = "≥" if one.unit in ("×", "steps/s") else "≤"
        rows.append(
            (
                one.work,
                one.claim,
                f"{one.measured:.2f} {one.unit}",
                f"{bound} {one.target:g} {one.unit}",
                "yes" if one.met else "**no**",
            )
        )
    header = ("work", "claim", "measured", "target", "met")
    return f"### Claims\n\n{table(header, rows)}\n"
