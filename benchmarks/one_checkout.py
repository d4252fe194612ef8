"""One side of old_and_new.py: the contests of a checkout, stepped batch by batch.

Imports no Corral by itself: benchmarks and Corral both come from the checkout, whose
modules may have other names than those beside this file.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve()
CALIBRATION = 100.0
"""Microseconds; both sides get the same iterations for what takes so long."""


def contests_of(script: str):
    """The contests of a script, and what runs in them."""
    module = importlib.import_module(script)
    if script == "vector_speed":
        return [(contest, None) for contest in module.CONTESTS]
    races = [(contest, module.VecEnvRunner) for contest in module.CONTESTS]
    return [*races, (module.TRAINING, module.TrainingRunner)]


class Checkout:
    """The runner of one checkout, in a process of its own."""

    def __init__(
        self, folder: Path, script: str, key: str, entrant: str, iterations: int
    ) -> None:
        command = [sys.executable, str(HERE), str(folder / "benchmarks")]
        command += [script, key, entrant, str(iterations)]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(folder / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.slots = int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended: {self._process.wait()}")
        return line

    def run(self, batches: int) -> float:
        assert self._process.stdin is not None
        print(batches, file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        self._process.communicate()


def serve(script: str, key: str, entrant: str, iterations: int) -> None:
    """Build the runner, then answer every number of batches with its seconds."""
    workloads = importlib.import_module("workloads")
    workloads.iterations_for = lambda us: round(iterations * us / CALIBRATION)
    module = importlib.import_module(script)
    found = [one for one in contests_of(script) if one[0].key == key]
    if not found:
        sys.exit(f"{module.__file__} has no contest {key!r}")
    contest, runner = found[0]
    entrants = module.ENTRANTS if runner is None else module.entrants(runner)
    built = entrants[entrant].build(contest.factory(), contest.slots)
    print(built.slots, flush=True)
    for line in sys.stdin:
        print(built.run(int(line)), flush=True)
    built.close()


if __name__ == "__main__":
    _, benchmarks, script, key, entrant, iterations = sys.argv
    sys.path[0] = benchmarks  # instead of the folder of this file
    serve(script, key, entrant, int(iterations))
