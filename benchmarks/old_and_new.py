"""Corral of this checkout beside Corral of another one, on the work of the benchmarks.

    git worktree add ../old COMMIT                     and build its C parts:
    cd ../old && python setup.py build_ext --inplace
    python benchmarks/old_and_new.py ../old            every contest, some minutes
    python benchmarks/old_and_new.py ../old --only ant those whose key has the word

Both run the contests of their own vector_speed.py and sb3_speed.py, each in its own
process, by turns in interleaved rounds; a ratio is the median of the rounds' own. Below
1 this checkout is slower. Both are started afresh several times (--starts): the same
code differs by up to 5 % from one start to the next, by where its memory happens to be.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import workloads
from contests import Contest, note, table
from one_checkout import CALIBRATION, Checkout, contests_of

from corral.tools.bench.measure import Rates, Runner, machine, race

HERE = Path(__file__).resolve()
SCRIPTS = ("vector_speed", "sb3_speed")
OURS = ("serial", "process", "auto")
TARGET = 0.97


@dataclass(frozen=True)
class Work:
    """One contest, and which of our entrants does it."""

    script: str
    contest: Contest
    entrant: str

    @property
    def key(self) -> str:
        return f"{self.script}/{self.contest.key}/{self.entrant}"


def works() -> Iterator[Work]:
    for script in SCRIPTS:
        for contest, _ in contests_of(script):
            if contest.cores == 1:
                for entrant in OURS:
                    if entrant in contest.names:
                        yield Work(script, contest, entrant)


# --- both ---------------------------------------------------------------------------


def compare(
    work: Work, old: Path, starts: int, rounds: int, turn_seconds: float, pace: int
) -> dict[str, Rates]:
    rates: dict[str, list[float]] = {"old": [], "new": []}
    for start in range(starts):
        with ExitStack() as stack:
            sides: dict[str, Runner] = {}
            checkouts = [("old", old), ("new", HERE.parents[1])]
            for name, checkout in checkouts[:: -1 if start % 2 else 1]:
                sides[name] = Checkout(
                    checkout, work.script, work.contest.key, work.entrant, pace
                )
                stack.callback(sides[name].close)
            raced = race(
                sides,
                rounds=rounds,
                turn_seconds=turn_seconds,
                on_turn=lambda name: note("."),
            )
        for name, of_this_start in raced.items():
            rates[name] += of_this_start.rounds
    return {name: Rates(tuple(figures)) for name, figures in rates.items()}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="the other checkout")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5, help="of each start")
    parser.add_argument("--turn", type=float, default=0.5, metavar="SECONDS")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write this")
    arguments = parser.parse_args()
    if not (arguments.old / "src").is_dir():
        parser.error("name the other checkout: a folder with src/corral in it")
    return arguments


def main() -> int:
    arguments = parse()
    starts, rounds, turn = arguments.starts, arguments.rounds, arguments.turn
    print(f"{machine()}; {starts} starts, {rounds} rounds each of {turn} s turns\n")
    iterations = workloads.iterations_for(CALIBRATION)
    rows, ratios = [], {}
    for work in works():
        if not any(word in work.key for word in arguments.only):
            continue
        note(f"{work.key} ")
        old = arguments.old.resolve()
        rates = compare(work, old, starts, rounds, turn, iterations)
        note("\n")
        ratio = ratios[work.key] = rates["new"].over(rates["old"])
        medians = (f"{rates[side].median:,.0f}" for side in ("old", "new"))
        met = "yes" if ratio >= TARGET else "**no**"
        rows.append((work.key, *medians, f"{ratio:.3f}", met))
    header = ("work", "old, steps/s", "new, steps/s", "new / old", f"≥ {TARGET}")
    print(table(header, rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(ratios, indent=2) + "\n")
    return 0 if all(ratio >= TARGET for ratio in ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
