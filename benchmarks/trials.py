"""Whole trials in parallel against one after the other, with equal data.

    python benchmarks/trials.py                 30 AntDir trials over 8 slots
    python benchmarks/trials.py --trials 60 --slots 16 --rounds 9

Both ways collect the same trials (random actions, two episodes of at most 200 steps),
in interleaved rounds; the ratio is the median of the rounds' own. Equality is checked
row by row. On a busy machine the CPU's seconds say more: those of the caller and all
workers, divided by the cores, against those of the sequential way.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import psutil

import corral
from corral.engine.executors.assign import usable_cores
from corral.rollouts.task_tables import task_table
from corral.zoo.meta import ant_dir

TARGET = 0.6


def make():
    return corral.Trials(ant_dir.make(), episodes=2)


class Random:
    """Uniform actions, from the generator of each trial."""

    def act(self, step, carry, rng):
        return corral.Decision((2 * rng.random(8) - 1).astype(np.float32))


def cpu_seconds() -> float:
    """Of this process and its workers, so far."""
    here = psutil.Process()
    every = (one.cpu_times() for one in (here, *here.children()))
    return sum(times.user + times.system for times in every)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    tasks = task_table(ant_dir.AntDir(), asked.trials, 0, seed=0).train
    ratios, computed = [], []
    with (
        corral.Pool(make, asked.slots, backend="process", seed=0) as many,
        corral.Pool(make, 1, backend="serial", seed=0) as one,
    ):
        print(many.layout)
        for turn in range(asked.rounds):
            seconds, cpu, found = {}, {}, {}
            for name, pool in (("parallel", many), ("sequential", one)):
                began, before = time.perf_counter(), cpu_seconds()
                found[name] = corral.run_episodes(
                    pool, Random(), tasks=tasks, seed=turn
                )
                seconds[name] = time.perf_counter() - began
                cpu[name] = cpu_seconds() - before
            pairs = zip(found["parallel"], found["sequential"], strict=True)
            assert all(
                np.array_equal(a.obs, b.obs) and np.array_equal(a.reward, b.reward)
                for a, b in pairs
            )
            ratios.append(seconds["parallel"] / seconds["sequential"])
            workers = min(many.layout.workers, usable_cores())
            computed.append(cpu["parallel"] / workers / cpu["sequential"])
            steps = sum(map(len, found["parallel"]))
            print(
                f"{steps} steps: {seconds} -> {ratios[-1]:.2f}, CPU {computed[-1]:.2f}"
            )
    ratio = statistics.median(ratios)
    met = "yes" if ratio <= TARGET else "no"
    print(f"median of {len(ratios)} rounds: {ratio:.2f} (wanted <= {TARGET}: {met})")
    print(f"by the seconds of the CPU: {statistics.median(computed):.2f}")


if __name__ == "__main__":
    main()
