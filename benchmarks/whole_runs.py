"""What old_and_new.py cannot measure by turns: short runs of a checkout's scripts.

Each answers with figures by name: start-up and memory, faults, stats_cost.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

FAULTS = ("noticed", "restarted", "replaced", "supervision")
BARE_START = re.compile(r"\(([\d.]+) s\)")


@dataclass(frozen=True)
class Value:
    """One figure of one run."""

    amount: float
    unit: str
    more_is_better: bool = False

    def over(self, other: Value) -> float:
        """How many times better than the other."""
        if self.more_is_better:
            return self.amount / other.amount
        return other.amount / self.amount


Values = dict[str, Value]
Run = Callable[[Path], Values]


def output_of(folder: Path, script: str, *arguments: str) -> str:
    """What a script of the checkout prints; its status says only what it claims."""
    command = [sys.executable, str(folder / "benchmarks" / f"{script}.py"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src")}
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False
    )
    if "Traceback" in result.stderr or not result.stdout:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr}")
    return result.stdout


def probe(script: str, name: str, argument: str) -> Run:
    """Seconds, MiB or descriptors that a fresh process tells of itself."""

    def run(folder: Path) -> Values:
        told = output_of(folder, script, "--probe", name, argument)
        found: dict[str, float] = json.loads(told.splitlines()[-1])
        return {unit: Value(amount, unit) for unit, amount in found.items()}

    return run


def faults(name: str, folder: Path) -> Values:
    """One contest of faults.py; replacing a worker is told with its bare start.

    Beyond that it takes about nothing, and nothing has no ratio.
    """
    with TemporaryDirectory() as place:
        answer = Path(place) / "figures.json"
        options = "--only", name, "--trials", "3", "--json", str(answer)
        output_of(folder, "faults", *options)
        figures = json.loads(answer.read_text())
    values: Values = {}
    seen: Counter[str] = Counter()
    for figure in figures:
        name, amount = figure["name"], figure["measured"]
        if bare := BARE_START.search(figure["what"]):
            amount += float(bare[1])
        seen[name] += 1
        values[f"{name}-{seen[name]}"] = Value(
            amount, figure["unit"], figure["at_least"]
        )
    return values


def stats_cost(folder: Path) -> Values:
    """Of its table: what a batch takes, and how much of it stats() takes."""
    values: Values = {}
    for line in output_of(folder, "stats_cost").splitlines():
        work, *figures = (cell.strip() for cell in line.strip("| ").split("|"))
        if len(figures) == 3 and "×" in work:
            values[f"{work}/batch"] = Value(float(figures[0]), "µs")
            values[f"{work}/stats"] = Value(float(figures[1]), "µs")
    return values


RUNS: dict[str, dict[str, Run]] = {
    "vector_speed": {
        "startup": probe("vector_speed", "startup", "corral"),
        "descriptors": probe("vector_speed", "descriptors", "8"),
    },
    "sb3_speed": {"startup": probe("sb3_speed", "startup", "corral")},
    "ppo_speed": {"memory": probe("ppo_speed", "memory", "8")},
    "threads": {
        "startup-threads": probe("threads", "startup", "thread-64"),
        "startup-processes": probe("threads", "startup", "process-8"),
    },
    "faults": {name: partial(faults, name) for name in FAULTS},
    "stats_cost": {"all": stats_cost},
}
"""By script and key."""
