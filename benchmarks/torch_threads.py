"""What torch's idle threads cost the workers, and what sending them home brings.

A small network acts, and envs of 250 µs are stepped by as many processes as there are
cores. Three ways, in turns:

    busy        a thread per core, and between two passes they wait as libgomp has them
    sent home   the same, as Corral does it (see corral.engine.executors.openmp)
    one         `torch.set_num_threads(1)`

    python benchmarks/torch_threads.py
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from statistics import median

import numpy as np
import torch
import workloads
from races import machine

import corral
from corral.engine.executors import openmp
from corral.engine.executors.assign import usable_cores

WAYS = ("busy", "sent home", "one")
WORTHWHILE = openmp.MIN_BATCH_SECONDS
STEPS = 150


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    cores, threads = usable_cores(), torch.get_num_threads()
    print(f"{machine()}, {threads} torch threads; {rounds} rounds\n")
    print("| work | " + " | ".join(f"{way}, ms a batch" for way in WAYS) + " |")
    print("|---" * (len(WAYS) + 1) + "|")
    for slots, workers in ((4 * cores, cores), (cores, cores), (4 * cores, cores - 1)):
        if not workers:
            continue
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way in WAYS:
                times[way].append(batch_time(slots, workers, way, threads))
        cells = " | ".join(f"{1e3 * median(times[way]):.2f}" for way in WAYS)
        print(f"| 250 µs ×{slots}, {workers} processes | {cells} |", flush=True)


def batch_time(slots: int, workers: int, way: str, threads: int) -> float:
    """Seconds from one batch of observations to the next."""
    openmp.MIN_BATCH_SECONDS = math.inf if way == "busy" else WORTHWHILE
    torch.set_num_threads(1 if way == "one" else threads)
    make = functools.partial(
        workloads.make_fixed_work, workloads.iterations_for(microseconds=250)
    )
    network = torch.nn.Sequential(
        torch.nn.Linear(105, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 64),
        torch.nn.Tanh(),
        torch.nn.Linear(64, 8),
    )
    seen = torch.zeros(slots, 105)
    taken = []
    with corral.Pool(make, slots, backend="process", workers=workers) as pool:
        actions = np.zeros(slots, np.int64)
        pool.reset(seed=0)
        for _ in range(STEPS):
            began = time.perf_counter()
            with torch.no_grad():
                network(seen)
            pool.step(actions)
            taken.append(time.perf_counter() - began)
    return median(taken[STEPS // 5 :])


if __name__ == "__main__":
    main()
