"""How long an epoch of tinyphysics_steer takes with 1, 2, 4, 8 and 16 cars.

    python benchmarks/tinyphysics_epochs.py DIR     DIR has tinyphysics.onnx and data/
    python benchmarks/tinyphysics_epochs.py         the small generated model
    python benchmarks/tinyphysics_epochs.py DIR --steps 4000 --rounds 2    a short look

An epoch is that of the recipe: it collects as many steps with any number of cars
(default: 100,000), then PPO updates the policy. One car steps in this process, more of
them in as many processes as there are cores, no more than cars, with one call of the
model for the cars of a process, on one thread. The numbers of cars take turns, round by
round; figures are medians. On 16 cores a round of the official model takes about five
minutes, of which the one car takes two.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from contests import note, table
from races import machine

from corral.train.recipes.resolve import resolve
from corral.zoo.tinyphysics.recipe import build

CARS = (1, 2, 4, 8, 16)
CORES = len(os.sched_getaffinity(0))
# More threads of torch do not update a policy of this size faster.
MOST_THREADS = 8


class Epoch(NamedTuple):
    """What one epoch took."""

    collecting: float
    learning: float
    steps: int
    episodes: int

    @property
    def seconds(self) -> float:
        """Of the whole."""
        return self.collecting + self.learning

    @property
    def speed(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


def epoch(cars: int, settings: dict) -> Epoch:
    """Collect and learn, as a run does."""
    place = {"backend": "process", "workers": min(cars, CORES)} if cars > 1 else {}
    config = resolve("tinyphysics_steer", {**settings, "num_envs": cars, **place})
    with closing(build(config)) as parts:
        parts.collect(1)  # starts the episodes
        began = time.perf_counter()
        rollout = parts.collect(config.ppo.n_steps)
        collected = time.perf_counter()
        parts.learner.update(rollout)
        learned = time.perf_counter() - collected
    found = Epoch(
        collected - began, learned, rollout.reward.size, len(rollout.episodes)
    )
    took = f"{found.collecting:.1f} + {found.learning:.1f} s"
    note(f"{cars} cars, the policy in the {parts.act_in}: {took}\n")
    return found


def row(cars: int, epochs: list[Epoch], alone: list[Epoch]) -> tuple[str, ...]:
    """The table's row for this many cars."""
    faster = [one.speed / two.speed for one, two in zip(epochs, alone, strict=True)]
    seconds = (
        statistics.median(getattr(one, name) for one in epochs)
        for name in ("collecting", "learning", "seconds")
    )
    return (
        str(cars),
        str(epochs[0].episodes),
        *(f"{one:.1f}" for one in seconds),
        f"{statistics.median(one.speed for one in epochs):,.0f}",
        f"{statistics.median(faster):.2f} ×",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("official", nargs="?", type=Path, metavar="DIR")
    add("--steps", type=int, default=100_000, help="of one epoch")
    add("--rounds", type=int, default=1)
    add("--act-in", choices=("caller", "workers", "auto"), help="default: the recipe's")
    add("--threads", type=int, default=min(CORES, MOST_THREADS), help="of PPO's update")
    given = parser.parse_args()
    settings = {"rollout_size": given.steps, "threads": given.threads}
    if given.act_in is not None:
        settings["act_in"] = given.act_in
    if given.official is not None:
        settings["data"] = str(given.official / "data")
        settings["model"] = str(given.official / "tinyphysics.onnx")
    print(f"{machine()}, {given.threads} threads of torch\n")
    found: dict[int, list[Epoch]] = {cars: [] for cars in CARS}
    for _ in range(given.rounds):
        for cars, epochs in found.items():
            epochs.append(epoch(cars, settings))
    head = (
        "cars",
        "episodes per epoch",
        "s collecting",
        "s learning",
        "s per epoch",
        "steps/s",
        "over one car",
    )
    rows = [row(cars, epochs, found[1]) for cars, epochs in found.items()]
    print(table(head, rows))


if __name__ == "__main__":
    main()
