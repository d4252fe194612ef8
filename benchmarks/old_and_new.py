"""Corral of this checkout beside Corral of another one, on the work of the benchmarks.

    git worktree add ../old COMMIT                     and build its C parts:
    cd ../old && python setup.py build_ext --inplace
    python benchmarks/old_and_new.py ../old            every script, most of an hour
    python benchmarks/old_and_new.py ../old --scripts stragglers faults
    python benchmarks/old_and_new.py ../old --only ant rows whose name has the word

Each checkout runs its own benchmarks in its own process, by turns in interleaved
rounds; a ratio is the median of the rounds' own. Below 1 this checkout is slower, or
takes more. Both are started afresh several times (--starts): the same code differs by
up to 5 % from one start to the next, by where its memory happens to be.

"rounds" has the least and the greatest ratio of a round: where they lie far apart other
programs had the cores, and a few rounds say little. "CPU" is the ratio of steps per
second of CPU time, workers included, which such programs change less; it does not see
waiting.

Only what runs on Corral is compared; TINYPHYSICS=DIR adds the official model of
tinyphysics_speed.py. Both run with the Python and the packages of this script.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import releasing
import workloads
from contests import note, table
from one_checkout import CALIBRATION, RACES, Checkout, RemoteRunner, races_of
from races import machine, race
from whole_runs import RUNS, Run, Values

from corral.tools.bench.measure import in_turn

HERE = Path(__file__).resolve()
SCRIPTS = tuple(dict.fromkeys([*RACES, *RUNS]))
TARGET = 0.97


@dataclass
class Row:
    """What both did in every round, and how many times better the new one was."""

    unit: str
    old: list[float] = field(default_factory=list)
    new: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    cpu_ratios: list[float] = field(default_factory=list)

    def add(self, old: float, new: float, ratio: float) -> None:
        self.old.append(old)
        self.new.append(new)
        self.ratios.append(ratio)

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def cells(self) -> tuple[str, ...]:
        amounts = (f"{statistics.median(one):,.4g}" for one in (self.old, self.new))
        met = "yes" if self.ratio >= TARGET else "**no**"
        spread = f"{min(self.ratios):.2f} to {max(self.ratios):.2f}"
        cpu = f"{statistics.median(self.cpu_ratios):.3f}" if self.cpu_ratios else ""
        return self.unit, *amounts, f"{self.ratio:.3f}", met, spread, cpu


class Comparison:
    """Two checkouts, and the rows that were compared so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.rows: dict[str, Row] = {}
        self.left_out: dict[str, tuple[int, str]] = {}
        self.starts: int = arguments.starts
        self._only: list[str] = arguments.only
        self._rounds: int = arguments.rounds
        self._turn: float = arguments.turn
        self._folders = {"old": arguments.old.resolve(), "new": HERE.parents[1]}
        self._amounts = {
            "workloads.iterations_for": workloads.iterations_for(CALIBRATION),
            "releasing.bytes_for": releasing.bytes_for(CALIBRATION),
        }

    def compare(self, script: str) -> None:
        if script in RACES:
            keys = [key for key in races_of(script) if self._wanted(script, key)]
            for start in range(self.starts if keys else 0):
                self._race_all(script, keys, start)
        for key, run in RUNS.get(script, {}).items():
            if self._wanted(script, key):
                self._run_whole(f"{script}/{key}", run)

    def _wanted(self, *names: str) -> bool:
        """Whether a word is in the name of a row, or of a race that has such rows."""
        name = "/".join(names)
        return any(word in name or word.startswith(f"{name}/") for word in self._only)

    # By turns -------------------------------------------------------------------------

    def _race_all(self, script: str, keys: list[str], start: int) -> None:
        with ExitStack() as stack:
            sides = {}
            for name in in_turn(["old", "new"], start):
                sides[name] = Checkout(self._folders[name], script, self._amounts)
                stack.callback(sides[name].close)
            for key in keys:
                note(f"{script}/{key} ")
                built = {name: side.ask("build", key) for name, side in sides.items()}
                for entrant in built["new"]:
                    self._race(f"{script}/{key}/{entrant}", sides, built, entrant)
                note("\n")

    def _race(
        self,
        row: str,
        sides: dict[str, Checkout],
        built: dict[str, dict[str, dict[str, Any]]],
        entrant: str,
    ) -> None:
        if not self._wanted(row):
            return
        old, new = (built[side].get(entrant, {}) for side in ("old", "new"))
        if why := obstacle(old, new):
            self.left_out[row] = self.left_out.get(row, (0, ""))[0] + 1, why
            return
        runners = {
            name: RemoteRunner(side, entrant, built[name][entrant]["slots"])
            for name, side in sides.items()
        }
        raced = race(runners, rounds=self._rounds, turn_seconds=self._turn)
        note(".")
        compared = self.rows.setdefault(row, Row("steps/s"))
        for rates in zip(raced["old"].rounds, raced["new"].rounds, strict=True):
            compared.add(*rates, rates[1] / rates[0])
        cpu = (runners[side].cpu_rates[-self._rounds :] for side in ("old", "new"))
        compared.cpu_ratios += [new / old for old, new in zip(*cpu, strict=True)]

    # Whole runs -----------------------------------------------------------------------

    def _run_whole(self, name: str, run: Run) -> None:
        note(f"{name} ")
        for number in range(self.starts * self._rounds):
            found: dict[str, Values] = {}
            for side in in_turn(["old", "new"], number):
                found[side] = run(self._folders[side])
                note(".")
            for key, new in found["new"].items():
                if self._wanted(name, key):
                    old = found["old"][key]
                    row = self.rows.setdefault(f"{name}/{key}", Row(new.unit))
                    row.add(old.amount, new.amount, new.over(old))
        note("\n")


def obstacle(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Why these two runners cannot be compared; empty where they can."""
    for side, one in (("old", old), ("new", new)):
        if not one:
            return f"{side} has no such entry"
        if "absent" in one:
            return str(one["absent"])
    if old["place"] != new["place"]:
        return f"old on {old['place']}, new on {new['place']}"
    return ""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="the other checkout")
    parser.add_argument("--scripts", nargs="+", choices=SCRIPTS, default=SCRIPTS)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3, help="of each start")
    parser.add_argument("--turn", type=float, default=0.3, metavar="SECONDS")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write this")
    arguments = parser.parse_args()
    if not (arguments.old / "src").is_dir():
        parser.error("name the other checkout: a folder with src/corral in it")
    return arguments


def main() -> int:
    arguments = parse()
    starts, rounds, turn = arguments.starts, arguments.rounds, arguments.turn
    print(f"{machine()}; {starts} starts, {rounds} rounds each of {turn} s turns\n")
    comparison = Comparison(arguments)
    try:
        for script in arguments.scripts:
            comparison.compare(script)
    except KeyboardInterrupt:
        print("Interrupted; what was measured until then:\n")
    print(report(comparison))
    if arguments.json:
        rows = {name: asdict(row) for name, row in comparison.rows.items()}
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if all(row.ratio >= TARGET for row in comparison.rows.values()) else 1


def report(comparison: Comparison) -> str:
    rows = [(name, *row.cells()) for name, row in comparison.rows.items()]
    header = ("row", "unit", "old", "new", "ratio", f"≥ {TARGET}", "rounds", "CPU")
    lines = [table(header, rows), ""]
    for name, (count, why) in comparison.left_out.items():
        lines.append(f"{name} left out {count} of {comparison.starts} times: {why}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
