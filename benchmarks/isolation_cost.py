"""What `isolate_rng=True` costs per env step.

python benchmarks/isolation_cost.py

Enters and leaves the generators of eight slots in turn: `random` and `numpy.random`,
then torch too if it is installed. A worker process exchanges states from slot to slot.
In the caller's process (serial) the outside states come back after each step of all
slots, and under threads after each step of one slot.
"""

from __future__ import annotations

import statistics
import time
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

from corral.engine.worker.isolated_rng import IsolatedRng

ROUNDS, COMMANDS, SLOTS = 15, 250, 8


def cost(isolation: IsolatedRng, around: Any) -> float:
    """CPU seconds for one entry and one leave, the median of the rounds."""
    rounds = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(COMMANDS):
            with around:
                for slot in range(SLOTS):
                    with isolation.of(slot):
                        pass
        rounds.append((time.process_time() - started) / COMMANDS / SLOTS)
    return statistics.median(rounds)


def report(what: str) -> None:
    """Print the costs of one set of generators."""
    row = [what]
    for lingers, in_a_row in ((True, False), (False, True), (False, False)):
        isolation = IsolatedRng(lambda slot: slot, lingers=lingers)
        around = isolation if in_a_row else nullcontext()
        cost(isolation, around)  # the first entry seeds
        row.append(f"{cost(isolation, around) * 1e6:.1f} µs")
        isolation.restore_outside()
    print("|", " | ".join(row), "|")


def main() -> None:
    print("| generators | process | serial | thread |\n|---|---|---|---|")
    report("`random`, `numpy.random`")
    if find_spec("torch") is not None:
        import torch  # noqa: F401 - its presence is what is measured

        report("`random`, `numpy.random`, torch")


if __name__ == "__main__":
    main()
