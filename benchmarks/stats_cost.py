"""What it costs that `stats()` is always there.

The pool looks at its clock five times a batch, four times where the caller runs the
envs, and the recorder counts every step's duration. Here the methods that look at the
clock are called by themselves, five looks in all, and set beside what a batch takes in
the caller. The pool has some of these calls written out, so it pays a little less.

    python benchmarks/stats_cost.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import corral
from corral.engine.layout.plan import DURATIONS_DTYPE, RECORD_DTYPE
from corral.engine.pool.state import PoolState
from corral.engine.worker.record import Recorder

WORK = (("CartPole-v1", 1), ("CartPole-v1", 8), ("CartPole-v1", 64), ("Ant-v5", 8))


def main() -> None:
    per_batch, per_step = clock_cost(), count_cost()
    print(f"clock {per_batch * 1e9:.0f} ns a batch, counting {per_step * 1e9:.0f} ns")
    print("| work, serial | µs a batch | stats, µs | share |")
    print("|---|---|---|---|")
    for env, slots in WORK:
        batch = batch_time(env, slots)
        cost = per_batch + slots * per_step
        print(
            f"| {env} ×{slots} | {batch * 1e6:.1f} | {cost * 1e6:.2f} | "
            f"{cost / batch:.1%} |"
        )
    for workers in (2, 16):
        stats, times = asking_costs(workers)
        print(f"{workers} workers: stats() {stats:.0f} µs, times() {times:.0f} µs")


def clock_cost() -> float:
    """Seconds a batch spends on the caller's clock."""
    state = PoolState(1, np.zeros(1, np.uint32))

    def batch() -> None:
        state.enter()
        state.leave()
        state.waited_since(time.perf_counter())
        state.leave()

    return best(batch) - best(lambda: None)


def count_cost() -> float:
    """Seconds a step's duration takes to be counted."""
    obs = np.zeros(4, np.float32)
    costs = []
    for times in (np.zeros(1, DURATIONS_DTYPE), None):
        recorder = Recorder(
            np.zeros((2, 1), RECORD_DTYPE),
            np.zeros((2, 1, 4), np.float32),
            memoryview(np.zeros(1, np.uint32)),
            None,
            times,
        )
        record = recorder.record
        costs.append(best(lambda record=record: record(0, 0, obs, 1.0, False, False)))
    return max(0.0, costs[0] - costs[1])


def asking_costs(workers: int) -> list[float]:
    """Microseconds that `stats()` and `times()` take."""
    options = {"backend": "process", "workers": workers}
    with corral.Pool("CartPole-v1", workers, **options) as pool:
        pool.reset()
        return [best(ask, 50, 5) * 1e6 for ask in (pool.stats, pool.times)]


def batch_time(env: str, slots: int) -> float:
    """Seconds a batch takes in the caller."""
    envs = corral.make(env, num_envs=slots, backend="serial")
    actions = envs.action_space.sample()
    envs.reset(seed=0)
    seconds = best(lambda: envs.step(actions), calls=max(20, 2000 // slots), rounds=5)
    envs.close()
    return seconds


def best(
    function: Callable[[], object], calls: int = 20_000, rounds: int = 15
) -> float:
    """Seconds per call in the best of some rounds."""
    shortest = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(calls):
            function()
        shortest = min(shortest, (time.perf_counter() - began) / calls)
    return shortest


if __name__ == "__main__":
    main()
