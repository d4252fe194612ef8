"""One side of old_and_new.py: the races of a checkout, stepped batch by batch.

Imports no Corral by itself: benchmarks and Corral both come from the checkout, whose
modules may have other names than those beside this file.

    build KEY           {name: {"slots", "place"} or {"absent": why}}
    run NAME BATCHES    [seconds, seconds of CPU time]
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from psutil import Process

HERE = Path(__file__).resolve()
CALIBRATION = 100.0
"""Microseconds; both sides get the same amounts for what takes so long."""
PEERS = {"async", "sync", "loop", "limit", "subproc", "dummy", "agilerl", "supersuit"}

Build = Callable[[], Any]
"""Makes a runner, which has `slots`, `run(batches)` and `close()`."""
Race = Callable[[ExitStack], dict[str, Any]]
"""Builds our runners by name, an ImportError in the place of one that lacks packages;
the stack closes them."""


# --- the races of a script ----------------------------------------------------------


def built(stack: ExitStack, builds: dict[str, Build]) -> dict[str, Any]:
    runners = {}
    for name, build in builds.items():
        try:
            runners[name] = build()
            stack.callback(runners[name].close)
        except ImportError as error:
            runners[name] = error
    return runners


def contest_race(contest: Any, entrants: Any) -> Race:
    def build(stack: ExitStack) -> dict[str, Any]:
        factory = contest.factory()
        ours = [name for name in entrants if name in set(contest.names) - PEERS]
        ways = {name: partial(entrants[name].build, factory) for name in ours}
        slots = contest.slots
        return built(stack, {name: partial(way, slots) for name, way in ways.items()})

    return build


def contests(script: Any) -> dict[str, Race]:
    return {
        contest.key: contest_race(contest, script.ENTRANTS)
        for contest in script.CONTESTS
        if contest.cores == 1
    }


def ppo_contests(script: Any) -> dict[str, Race]:
    script.torch.set_num_threads(1)
    return contests(script)


def sb3_contests(script: Any) -> dict[str, Race]:
    found = [(contest, script.VecEnvRunner) for contest in script.CONTESTS]
    found.append((script.TRAINING, script.TrainingRunner))
    found.append((script.CROWDED, script.CrowdedRunner))
    return {
        contest.key: contest_race(contest, script.entrants(runner))
        for contest, runner in found
    }


def straggler_races(script: Any) -> dict[str, Race]:
    def build(race: Any, stack: ExitStack) -> dict[str, Any]:
        runners = race.runners(stack)
        return {name: runners[name] for name in runners if name not in PEERS}

    return {race.key: partial(build, race) for race in script.RACES}


def collect_races(script: Any) -> dict[str, Race]:
    def build(work: Any, stack: ExitStack) -> dict[str, Any]:
        plain, *others = work.pools(1 + len(script.MODES))
        builds = {"plain": partial(script.Plain, plain)}
        for mode, pool in zip(script.MODES, others, strict=True):
            builds[mode] = partial(script.Collecting, pool, mode)
        return built(stack, builds)

    return {work.key: partial(build, work) for work in script.WORK}


def tinyphysics_races(script: Any) -> dict[str, Race]:
    data = {"small": script.Data("small", None, None)}
    if place := os.environ.get("TINYPHYSICS"):
        model, routes = Path(place) / "tinyphysics.onnx", Path(place) / "data"
        data["official"] = script.Data("official", str(model), str(routes))

    def build(one: Any, stack: ExitStack) -> dict[str, Any]:
        ways = {name: way for name, (_, *way) in script.RUNNERS.items()}
        collecting = partial(script.Collecting, one)
        return built(stack, {name: partial(collecting, *ways[name]) for name in ways})

    return {key: partial(build, one) for key, one in data.items()}


RACES = {
    "vector_speed": contests,
    "sb3_speed": sb3_contests,
    "multiagent_speed": contests,
    "ppo_speed": ppo_contests,
    "stragglers": straggler_races,
    "threads": contests,
    "collect_cost": collect_races,
    "tinyphysics_speed": tinyphysics_races,
}


def races_of(script: str) -> dict[str, Race]:
    return RACES[script](importlib.import_module(script))


# --- in the process of a checkout -----------------------------------------------------


class Server:
    """Has the runners of one race at a time."""

    def __init__(self, races: dict[str, Race]) -> None:
        self._races = races
        self._stack = ExitStack()
        self._runners: dict[str, Any] = {}

    def build(self, key: str) -> dict[str, dict[str, Any]]:
        self.close()
        self._runners = self._races[key](self._stack)
        return {name: described(runner) for name, runner in self._runners.items()}

    def run(self, name: str, batches: str) -> tuple[float, float]:
        children = [one.pid for one in Process().children(recursive=True)]
        before = cpu_seconds(children)
        seconds: float = self._runners[name].run(int(batches))
        return seconds, cpu_seconds(children) - before

    def close(self) -> None:
        self._stack.close()


def cpu_seconds(children: list[int]) -> float:
    """What this process and its children had of the cores, all threads of them."""
    tasks = (task for pid in children for task in Path(f"/proc/{pid}/task").iterdir())
    return time.process_time() + sum(map(nanoseconds_of, tasks)) / 1e9


def nanoseconds_of(task: Path) -> int:
    try:
        return int((task / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
        return 0


def described(runner: Any) -> dict[str, Any]:
    """Its slots, and where its envs are: `auto` may choose differently next time."""
    if isinstance(runner, ImportError):
        return {"absent": str(runner)}
    envs = getattr(runner, "envs", None) or getattr(runner, "_pool", None)
    layout = getattr(envs, "layout", None)
    place = f"{layout.backend} ×{layout.workers}" if layout else ""
    return {"slots": runner.slots, "place": place}


def serve(script: str, amounts: dict[str, float]) -> None:
    """Answer every line with a line of JSON."""
    for name, amount in amounts.items():
        module, _, function = name.partition(".")
        fixed = lambda us, amount=amount: round(amount * us / CALIBRATION)  # noqa: E731
        setattr(importlib.import_module(module), function, fixed)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what envs print is no answer
    server = Server(races_of(script))
    for line in sys.stdin:
        command, *words = line.rstrip("\n").split("\t")
        print(json.dumps(getattr(server, command)(*words)), file=answers, flush=True)
    server.close()


# --- seen from old_and_new.py ---------------------------------------------------------


class Checkout:
    """The races of one checkout, in a process of its own."""

    def __init__(self, folder: Path, script: str, amounts: dict[str, float]) -> None:
        command = [sys.executable, str(HERE), str(folder / "benchmarks"), script]
        self._process = subprocess.Popen(
            [*command, json.dumps(amounts)],
            env={**os.environ, "PYTHONPATH": str(folder / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, sep="\t", file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended: {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()


class RemoteRunner:
    """One of its runners."""

    def __init__(self, checkout: Checkout, name: str, slots: int) -> None:
        self.slots = slots
        self.cpu_rates: list[float] = []
        """Steps per second of CPU time in every run."""
        self._checkout = checkout
        self._name = name

    def run(self, batches: int) -> float:
        seconds, cpu = self._checkout.ask("run", self._name, batches)
        self.cpu_rates.append(self.slots * batches / cpu)
        return float(seconds)

    def close(self) -> None:
        """With its checkout."""


if __name__ == "__main__":
    _, benchmarks, script, amounts = sys.argv
    sys.path[0] = benchmarks  # instead of the folder of this file
    serve(script, json.loads(amounts))
