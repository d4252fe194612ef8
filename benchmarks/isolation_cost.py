"""What `isolate_rng=True` costs per env step.

python benchmarks/isolation_cost.py

Enters and leaves a slot's own generators, as the worker does around every step: first
`random` and `numpy.random`, then torch too if it is installed, then the careful way
that is taken where the generators' memory cannot be exchanged directly.
"""

from __future__ import annotations

import statistics
import time
from importlib.util import find_spec

from corral.engine.worker import global_rng
from corral.engine.worker.isolated_rng import IsolatedRng

ROUNDS, TURNS = 15, 2000


def cost() -> float:
    """Seconds for one entry and one leave, the median of the rounds."""
    isolation = IsolatedRng(lambda slot: slot)
    with isolation.of(0):
        pass  # the first entry seeds
    rounds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(TURNS):
            with isolation.of(0):
                pass
        rounds.append((time.perf_counter() - started) / TURNS)
    return statistics.median(rounds)


def report(what: str, seconds: float) -> None:
    print(f"| {what} | {seconds * 1e6:.1f} µs |")


def main() -> None:
    print("| generators | cost per step |\n|---|---|")
    report("`random`, `numpy.random`", cost())
    names = ("_python_proved", "_numpy_proved")
    kept = {name: getattr(global_rng, name) for name in names}
    vars(global_rng).update(dict.fromkeys(names, lambda: False))
    report("the same, the careful way", cost())
    vars(global_rng).update(kept)
    if find_spec("torch") is not None:
        import torch  # noqa: F401 - its presence is what is measured

        report("`random`, `numpy.random`, torch", cost())


if __name__ == "__main__":
    main()
