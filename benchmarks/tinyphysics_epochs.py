"""How long an epoch of tinyphysics_steer takes with 1, 2, 4, 8 and 16 cars.

    python benchmarks/tinyphysics_epochs.py DIR     DIR has tinyphysics.onnx and data/
    python benchmarks/tinyphysics_epochs.py         the small generated model
    python benchmarks/tinyphysics_epochs.py DIR --steps 4000 --rounds 2    a short look

An epoch collects as many steps with any number of cars (default: 100,000), each with a
decision of a policy of the recipe's size; learning is left out. One car steps in this
process, more of them in as many processes as there are cores, no more than cars, with
one call of the model for the cars of a process. The numbers of cars take turns, round
by round; figures are medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import torch
from contests import note, table
from races import machine

from corral.learners.ppo import PPO
from corral.rollouts.collector import Collector
from corral.train.recipes.resolve import resolve
from corral.zoo.tinyphysics import find_routes
from corral.zoo.tinyphysics.recipe import _training_pool

CARS = (1, 2, 4, 8, 16)


def epoch(cars: int, steps: int, data: str | None, model: str | None) -> tuple:
    """Collect one epoch; returns its seconds and episodes."""
    workers = min(cars, len(os.sched_getaffinity(0)))
    place = {"backend": "process", "workers": workers} if cars > 1 else {}
    given = {"data": data, "model": model, "num_envs": cars, **place}
    config = resolve("tinyphysics_steer", {**given, "rollout_size": steps})
    pool = _training_pool(config, find_routes(data))
    try:
        ppo = PPO(pool.spec.observation_space, pool.spec.action_space, config.ppo)
        collector = Collector(pool, ppo.policy)
        collector.collect(1)  # starts the episodes
        began = time.perf_counter()
        rollout = collector.collect(config.ppo.n_steps)
        return time.perf_counter() - began, len(rollout.episodes), rollout.reward.size
    finally:
        pool.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("official", nargs="?", type=Path, metavar="DIR")
    parser.add_argument("--steps", type=int, default=100_000, help="of one epoch")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = model = None
    if arguments.official is not None:
        data = str(arguments.official / "data")
        model = str(arguments.official / "tinyphysics.onnx")
    print(f"{machine()}\n")
    found: dict[int, list[tuple]] = {cars: [] for cars in CARS}
    for _ in range(arguments.rounds):
        for cars in CARS:
            found[cars].append(epoch(cars, arguments.steps, data, model))
            note(".")
    note("\n")
    rows = []
    for cars, epochs in found.items():
        seconds = statistics.median(one[0] for one in epochs)
        faster = statistics.median(
            (alone[0] / alone[2]) / (one[0] / one[2])
            for alone, one in zip(found[1], epochs, strict=True)
        )
        _, episodes, steps = epochs[0]
        figures = (f"{seconds:.1f}", f"{steps / seconds:,.0f}", f"{faster:.2f} ×")
        rows.append((str(cars), str(episodes), *figures))
    head = (
        "cars",
        "episodes per epoch",
        "seconds per epoch",
        "steps/s",
        "over one car",
    )
    print(table(head, rows))


if __name__ == "__main__":
    main()
