"""Where a GPU pays for tinyphysics: so many cars, one call of the model for all.

    python benchmarks/tinyphysics_gpu.py DIR         DIR has tinyphysics.onnx and data/

Needs onnxruntime-gpu. One process, batched, a PID controller leading; the same cars on
one core of the CPU beside it, in turns. Costs of ten routes are compared as well: a GPU
adds up in another order, so a draw may flip, and then that route goes another way.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter

from contests import note, table
from races import machine, race
from tinyphysics_speed import Data

import corral
from corral.engine.pool import Pool
from corral.zoo.tinyphysics import (
    PID,
    RouteOrder,
    find_routes,
    load_model,
    make_tinyphysics_batched,
)

DEVICES = ("cpu", "cuda:0")
SLOTS = (8, 64, 256, 1024)
ROUTES = 10


class Collecting:
    """Rollouts of a pool in this process, one after the other."""

    def __init__(self, data: Data, slots: int, device: str) -> None:
        self.slots = slots
        routes = find_routes(data.routes)
        self._pool = Pool(
            make_tinyphysics_batched,
            slots,
            batched=True,
            backend="serial",
            infos="final",
            env_kwargs={"routes": routes, "model": load_model(data.model, device)},
            sample_task=RouteOrder(routes, slots),
        )
        self._collector = corral.Collector(self._pool, PID())

    def run(self, batches: int) -> float:
        began = perf_counter()
        self._collector.collect(batches)
        return perf_counter() - began

    def close(self) -> None:
        self._pool.close()


def contest(data: Data, slots: int) -> tuple[str, ...]:
    with ExitStack() as stack:
        runners = {}
        for device in DEVICES:
            runners[device] = Collecting(data, slots, device)
            stack.callback(runners[device].close)
        rates = race(
            runners, rounds=5, turn_seconds=1.5, on_turn=lambda name: note(".")
        )
    ratio = rates["cuda:0"].over(rates["cpu"])
    medians = [f"{rates[device].median:,.0f}" for device in DEVICES]
    return (f"{slots:,}", *medians, f"{ratio:.2f} ×")


def costs(data: Data, device: str) -> list[float]:
    """Of the first routes, driven by the PID controller."""
    routes = find_routes(data.routes)[:ROUTES]
    kwargs = {"routes": routes, "model": load_model(data.model, device)}
    kwargs["dtype"] = "float64"
    with Pool(
        make_tinyphysics_batched,
        ROUTES,
        batched=True,
        backend="serial",
        infos="final",
        env_kwargs=kwargs,
    ) as pool:
        tasks = [{"route": route} for route in routes]
        episodes = corral.run_episodes(pool, PID(), tasks=tasks, rows=False)
        return [episode.info["episode_cost"]["total"] for episode in episodes]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("official", type=Path, metavar="DIR")
    place = parser.parse_args().official
    data = Data("official", str(place / "tinyphysics.onnx"), str(place / "data"))
    print(f"{machine()}\n")
    pairs = zip(costs(data, "cpu"), costs(data, "cuda:0"), strict=True)
    paths = find_routes(data.routes)[:ROUTES]
    flipped = [
        (path, f"{one:.6f}", f"{other:.6f}")
        for path, (one, other) in zip(paths, pairs, strict=True)
        if abs(one - other) >= 1e-6
    ]
    print(f"{ROUTES - len(flipped)} of {ROUTES} routes cost the same to 1e-6 on both\n")
    if flipped:
        print(table(("a draw flipped in", "CPU", "GPU"), flipped), "\n")
    rows = [contest(data, slots) for slots in SLOTS]
    note("\n")
    print(table(("cars", "CPU, one core", "GPU", "GPU over CPU"), rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
