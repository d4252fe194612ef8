"""What two workers, and one call of the model for a whole shard, bring to tinyphysics.

    python benchmarks/tinyphysics_speed.py DIR       DIR has tinyphysics.onnx and data/
    python benchmarks/tinyphysics_speed.py           the small generated model alone
    python benchmarks/tinyphysics_speed.py DIR --quick

A PID controller drives; resets and routes read from disk are included. The runners of a
contest take turns, round by round; a ratio is the median of those within the rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from contests import Verdict, note, report_verdicts, table
from races import machine, race

import corral
from corral.tools.bench.measure import Rates
from corral.zoo.tinyphysics import RouteOrder, find_routes
from corral.zoo.tinyphysics.evaluation import controller_of, open_pool

SLOTS = 32
RUNNERS = {
    "one": ("1 process", 1, False),
    "two": ("2 processes", 2, False),
    "one-batched": ("1 process, batched", 1, True),
    "two-batched": ("2 processes, batched", 2, True),
}
CLAIMS = {
    "official": (
        ("two", "one", 1.8),
        ("two-batched", "one-batched", 1.8),
        ("two-batched", "two", 1.1),
    ),
    "small": (("one-batched", "one", 1.5), ("two-batched", "two", 1.5)),
}
"""The first is at least so many times as fast as the second."""


@dataclass
class Data:
    """Which model, and which routes."""

    title: str
    model: str | None
    routes: str | None


class Collecting:
    """Rollouts of a pool, one after the other."""

    def __init__(self, data: Data, workers: int, batched: bool) -> None:
        pid = controller_of("pid")
        self.slots = SLOTS
        self._pool = open_pool(
            pid,
            data.model,
            SLOTS,
            backend="process",
            workers=workers,
            batched=batched,
            sample_task=RouteOrder(find_routes(data.routes), SLOTS),
        )
        policy = pid.policy_for(self._pool.spec)
        self._collector = corral.Collector(self._pool, policy)

    def run(self, batches: int) -> float:
        began = time.perf_counter()
        self._collector.collect(batches)
        return time.perf_counter() - began

    def close(self) -> None:
        self._pool.close()


def contest(data: Data, rounds: int, seconds: float) -> dict[str, Rates]:
    with ExitStack() as stack:
        runners = {}
        for name, (_, workers, batched) in RUNNERS.items():
            runners[name] = Collecting(data, workers, batched)
            stack.callback(runners[name].close)
        return race(
            runners, rounds=rounds, turn_seconds=seconds, on_turn=lambda name: note(".")
        )


def report(data: Data, rates: dict[str, Rates]) -> str:
    rows = [
        (RUNNERS[name][0], f"{one.median:,.0f}", f"±{one.spread:.0%}")
        for name, one in rates.items()
    ]
    body = table((f"{SLOTS} cars", "steps/s", "spread"), rows)
    return f"### {data.title}\n\n{body}\n"


def verdicts(key: str, data: Data, rates: dict[str, Rates]) -> list[Verdict]:
    found = []
    for name, over, target in CLAIMS[key]:
        measured = rates[name].over(rates[over])
        claim = f"{RUNNERS[name][0]} over {RUNNERS[over][0]}"
        found.append(Verdict(data.title, claim, measured, target, measured >= target))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("official", nargs="?", type=Path, metavar="DIR")
    parser.add_argument("--only", choices=tuple(CLAIMS), help="one of the models")
    parser.add_argument("--quick", action="store_true", help="short turns")
    parser.add_argument("--rounds", type=int, help="turns for each")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (3 if arguments.quick else 7)
    seconds = 0.5 if arguments.quick else 3.0
    work = {"small": Data("the small generated model", None, None)}
    if arguments.official is not None:
        place = arguments.official
        paths = str(place / "tinyphysics.onnx"), str(place / "data")
        work["official"] = Data("the official model", *paths)
    print(f"{machine()}\n")
    found: list[Verdict] = []
    record: dict[str, object] = {}
    for key, data in work.items():
        if arguments.only not in (None, key):
            continue
        note(f"{key} ")
        rates = contest(data, rounds, seconds)
        note("\n")
        print(report(data, rates), flush=True)
        found += verdicts(key, data, rates)
        record[key] = {name: one.rounds for name, one in rates.items()}
    print(report_verdicts(found))
    if arguments.json:
        record["claims"] = [asdict(one) for one in found]
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0 if all(one.met for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
