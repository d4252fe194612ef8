"""Whole trials in parallel against one after the other, with equal data.

    python benchmarks/trials.py                 30 AntDir trials over 8 slots
    python benchmarks/trials.py --trials 60 --slots 16 --rounds 9

Both ways collect the same trials (random actions, two episodes of at most 200 steps),
in interleaved rounds; the ratio is the median of the rounds' own. Equality is checked
row by row.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import corral
from corral.rollouts.task_tables import task_table
from corral.zoo.meta import ant_dir

TARGET = 0.6


def make():
    return corral.Trials(ant_dir.make(), episodes=2)


class Random:
    """Uniform actions, from the generator of each trial."""

    def act(self, step, carry, rng):
        return corral.Decision((2 * rng.random(8) - 1).astype(np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    tasks = task_table(ant_dir.AntDir(), asked.trials, 0, seed=0).train
    ratios = []
    with (
        corral.Pool(make, asked.slots, backend="process", seed=0) as many,
        corral.Pool(make, 1, backend="serial", seed=0) as one,
    ):
        print(many.layout)
        for turn in range(asked.rounds):
            seconds, found = {}, {}
            for name, pool in (("parallel", many), ("sequential", one)):
                began = time.perf_counter()
                found[name] = corral.run_episodes(
                    pool, Random(), tasks=tasks, seed=turn
                )
                seconds[name] = time.perf_counter() - began
            pairs = zip(found["parallel"], found["sequential"], strict=True)
            assert all(
                np.array_equal(a.obs, b.obs) and np.array_equal(a.reward, b.reward)
                for a, b in pairs
            )
            ratios.append(seconds["parallel"] / seconds["sequential"])
            steps = sum(map(len, found["parallel"]))
            print(f"{steps} steps: {seconds} -> {ratios[-1]:.2f}", flush=True)
    ratio = statistics.median(ratios)
    met = "yes" if ratio <= TARGET else "no"
    print(f"median of {len(ratios)} rounds: {ratio:.2f} (wanted <= {TARGET}: {met})")


if __name__ == "__main__":
    main()
