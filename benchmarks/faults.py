"""What faults cost: to notice, to mend, and to be ready for.

    python benchmarks/faults.py                 # all but the last, two minutes
    python benchmarks/faults.py --only noticed
    python benchmarks/faults.py --faults 1000   # the last: as long as that takes

noticed       a worker is killed while it is waited for: until the error is raised
restarted     an env raises: what the step takes beyond its constructor
replaced      a worker is killed: until its slots are back, beyond what a bare process
              takes to import the same and build the same envs
survivors     what the other worker does meanwhile, of what it did before
supervision   CartPole ×64 with everything watched, of what it does with nothing watched
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import gymnasium
import numpy as np
from races import VectorRunner, machine, race
from workloads import FixedWork, iterations_for

import corral
from corral.errors import WorkerDied
from corral.tools.bench.measure import Rates

RAISE, HANG = 1, 2
MILLISECOND = 1e-3
SLOTS = 64
"""Of the pool whose envs raise: each once, since the second time is put off."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that was promised."""

    name: str
    what: str
    measured: float
    target: float
    unit: str
    at_least: bool = False
    spread: str = ""

    @property
    def met(self) -> bool:
        if self.at_least:
            return self.measured >= self.target
        return self.measured <= self.target

    def row(self) -> str:
        sign = "≥" if self.at_least else "≤"
        met = "yes" if self.met else "**no**"
        measured = f"{self.measured:.3g} {self.unit}{self.spread}"
        return (
            f"| {self.what} | {measured} | {sign} {self.target:g} {self.unit} | {met} |"
        )


class Obedient(FixedWork):
    """Raises or hangs when told to, and says how long it took to build."""

    def __init__(self, iterations: int, building: float = 0.0) -> None:
        began = time.perf_counter()
        super().__init__(iterations)
        self.action_space = gymnasium.spaces.Discrete(3)
        time.sleep(building)
        self.built = time.perf_counter() - began

    def reset(self, *, seed=None, options=None):
        observation, _ = super().reset(seed=seed)
        return observation, {"built": self.built}

    def step(self, action):
        if action == RAISE:
            raise ValueError("as asked")
        if action == HANG:
            time.sleep(3600)
        return super().step(action)


def middle(values: list[float]) -> tuple[float, str]:
    """The median, and the worst of them."""
    return statistics.median(values), f" (worst {max(values):.3g})"


# Noticing -----------------------------------------------------------------------------


def noticed(trials: int) -> Iterator[Figure]:
    times = [notice() / MILLISECOND for _ in range(trials)]
    median, worst = middle(times)
    what = "a dead worker is noticed while waiting on it"
    yield Figure("noticed", what, median, 50, "ms", spread=worst)


def notice() -> float:
    """Seconds from the signal to the error."""
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.perf_counter())
        os.kill(pid, signal.SIGKILL)

    with corral.Pool(lambda: Obedient(10), 2, backend="process", workers=2) as pool:
        pool.reset()
        pid = pool.stats().workers[1].pid
        pool.send([0, HANG])
        threading.Timer(0.1, kill).start()
        try:
            pool.recv()
        except WorkerDied:
            return time.perf_counter() - killed[0]
    raise AssertionError("nobody noticed")


# An env that raises -------------------------------------------------------------------


def restarted(trials: int) -> Iterator[Figure]:
    for building, what in ((0.0, "an instant"), (0.05, "50 ms")):
        times = [second / MILLISECOND for second in restarts(building)]
        median, worst = middle(times)
        text = f"an env whose constructor takes {what} is restarted, beyond that"
        yield Figure("restarted", text, median, 5, "ms", spread=worst)


def restarts(building: float) -> list[float]:
    """Seconds of steps in which one env raises, without its constructor."""
    make = lambda: Obedient(10, building)  # noqa: E731
    options = {"backend": "process", "workers": 2, "on_fault": "restart"}
    with corral.Pool(make, SLOTS, **options) as pool:
        pool.reset()
        actions = np.zeros(SLOTS, int)
        plain = statistics.median(
            timed(lambda: pool.step(actions))[0] for _ in range(50)
        )
        beyond = []
        for slot in range(SLOTS):
            actions[:] = 0
            actions[slot] = RAISE
            seconds, step = timed(lambda: pool.step(actions))
            built = float(step.infos.of(slot)["built"])
            beyond.append(seconds - built - plain)
    return beyond


def timed(function: Callable[[], corral.Step]) -> tuple[float, corral.Step]:
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


# A worker that dies -------------------------------------------------------------------


def replaced(trials: int) -> Iterator[Figure]:
    iterations = iterations_for(1000)
    bare = statistics.median(bare_start(iterations) for _ in range(5))
    times, shares = [], []
    for _ in range(trials):
        seconds, share = replace(iterations)
        times.append(seconds - bare)
        shares.append(share)
    median, worst = middle(times)
    what = f"a dead worker is replaced, beyond a bare start ({bare:.2f} s)"
    yield Figure("replaced", what, median, 0.5, "s", spread=worst)
    share = statistics.median(shares)
    least = f" (worst {min(shares):.3g})"
    what = "the survivor's rate meanwhile, of its own before"
    yield Figure("survivors", what, share, 0.8, "×", True, least)


def bare_start(iterations: int) -> float:
    """Seconds for a process to import what a worker does and build what it does."""
    code = (
        "import corral.engine.worker.main, faults\n"
        f"envs = [faults.Obedient({iterations}) for _ in range(4)]\n"
    )
    began = time.perf_counter()
    folder = Path(__file__).parent
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
    return time.perf_counter() - began


def replace(iterations: int) -> tuple[float, float]:
    """Seconds from the signal to the first result of the new worker, and the share."""
    make = lambda: Obedient(iterations)  # noqa: E731
    with corral.Pool(make, 8, workers=2, on_fault="restart") as pool:
        pool.reset()
        pool.send(np.zeros(8, int))
        before = survivor_rate(pool, until=lambda step, now: now > 0.6)[1]
        killed = time.perf_counter()
        os.kill(pool.stats().workers[1].pid, signal.SIGKILL)
        returned, during = survivor_rate(
            pool, until=lambda step, _: bool((~step.valid).any())
        )
        return returned - killed, during / before


def survivor_rate(
    pool: corral.Pool, until: Callable[[corral.Step, float], bool]
) -> tuple[float, float]:
    """Step who is ready; when it was over, and steps a second of worker 0 meanwhile."""
    shard = pool.shards[0]
    began = time.perf_counter()
    steps = 0
    while True:
        step = pool.recv(min_slots=1)
        now = time.perf_counter()
        steps += int(np.isin(step.slots, shard).sum())
        pool.send(np.zeros(len(step.slots), int), slots=step.slots)
        if until(step, now - began):
            return now, steps / (now - began)


# Supervision --------------------------------------------------------------------------


def supervision(trials: int) -> Iterator[Figure]:
    watched = {"on_fault": "restart", "step_timeout": 60.0, "reset_timeout": 60.0}
    runners = {
        name: VectorRunner(
            corral.make("CartPole-v1", num_envs=64, backend="process", **options)
        )
        for name, options in {"nothing": {}, "all": watched}.items()
    }
    try:
        rates = race(runners, rounds=max(5, 3 * trials), turn_seconds=0.3)
    finally:
        for runner in runners.values():
            runner.close()
    ratio = rates["all"].over(rates["nothing"])
    what = "CartPole ×64 with everything watched, of nothing watched"
    yield Figure("supervision", what, ratio, 0.98, "×", True, spread_of(rates))


def spread_of(rates: dict[str, Rates]) -> str:
    return f" ±{max(rate.spread for rate in rates.values()):.0%}"


# The soak -----------------------------------------------------------------------------


def soaked(faults: int) -> Iterator[Figure]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.soak.random_faults import soak  # needs psutil

    tally = soak(faults=faults)
    for mistake in tally.mistakes:
        print(mistake)
    count = tally.faults.total()
    what = f"mistakes and leaks in {count} faults, {tally.rows.total()} rows"
    yield Figure("soak", what, len(tally.mistakes), 0, "in all")


CONTESTS = {
    "noticed": noticed,
    "restarted": restarted,
    "replaced": replaced,
    "supervision": supervision,
}


def main() -> int:
    parser = argparse.ArgumentParser(description="What faults cost.")
    parser.add_argument("--only", nargs="+", choices=CONTESTS, default=list(CONTESTS))
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--faults", type=int, help="only the soak, with so many faults")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    arguments = parser.parse_args()
    print(f"{machine()}\n\n| figure | measured | target | met |\n|---|---|---|---|")
    figures = []
    for figure in chosen(arguments):
        print(figure.row(), flush=True)
        figures.append(figure)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(figure) for figure in figures]))
    return 0 if all(figure.met for figure in figures) else 1


def chosen(arguments: argparse.Namespace) -> Iterator[Figure]:
    if arguments.faults:
        yield from soaked(arguments.faults)
        return
    for name in arguments.only:
        yield from CONTESTS[name](arguments.trials)


if __name__ == "__main__":
    sys.exit(main())
