"""Plays a program on `corral.map` or a crew: the results of a plain loop."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from corral.engine.crew import Crew
from corral.engine.parallel_map import map as parallel_map
from corral.errors import Fault, ItemError, WorkerDied
from corral.tools.testing.faulty_envs import OnPurpose
from tests.soak.programs.compare import difference
from tests.soak.programs.digests import digest
from tests.soak.programs.program import Program
from tests.soak.programs.stage import ProgramPlay

FAILURE_WAYS = ("raise", "kill", "exit")
ITEMS_PER_FAILURE = 9
"""One of so many items fails, where a program has such."""


class MapPlay(ProgramPlay):
    """Items, some of which fail: in one map, or in several of one crew."""

    def play(self) -> None:
        """All of it."""
        rng, backend = self.rng, self.program.backend.replace("auto", "process")
        restarts = backend == "process" and rng.random() < 0.5
        options: dict[str, Any] = {"backend": backend, "workers": self.program.workers}
        if restarts:
            options |= {"on_fault": "restart", "max_restarts": 1}
        if rng.random() < 0.5:
            self.play_one(partial(parallel_map, **options), backend, restarts)
            return
        with Crew(**options) as crew:
            for _ in range(rng.randint(1, 4)):
                self.play_one(crew.map, backend, restarts)

    def play_one(self, run: Callable[..., Any], backend: str, restarts: bool) -> None:
        """One map."""
        rng = self.rng
        items = [rng.getrandbits(30) for _ in range(rng.randint(0, 30))]
        ways = FAILURE_WAYS if backend == "process" else ("raise",)
        way = rng.choice(("", *ways))
        unlucky = [place for place, item in enumerate(items) if is_unlucky(item, way)]
        given: Any = iter(items) if rng.random() < 0.3 else items
        try:
            got = run(partial(work, way), given)
        except (ItemError, WorkerDied) as error:
            if restarts or error.fault.item not in unlucky:
                raise
            expected = ItemError if way in ("raise", "exit") else WorkerDied
            self.unexpected(error, (expected,))
            return
        if unlucky and not restarts:
            self.missing(way)
        self.compare(got, items, unlucky)

    def compare(self, got: Any, items: list[int], unlucky: list[int]) -> None:
        """Every result, and a fault where one has to be."""
        self.check(difference(len(got), len(items), "the number of results"))
        for place, (result, item) in enumerate(zip(got, items, strict=False)):
            where = f"result {place}"
            if place in unlucky:
                is_fault = isinstance(result, Fault) and result.item == place
                self.check("" if is_fault else f"{where} is {result!r:.100}, no fault")
            else:
                self.check(difference(result, work("", item), where))


def is_unlucky(item: int, way: str) -> bool:
    """Whether an item fails."""
    return bool(way) and item % ITEMS_PER_FAILURE == 0


def work(way: str, item: int) -> dict[str, Any]:
    """What is done with an item."""
    if is_unlucky(item, way):
        if way == "raise":
            raise OnPurpose("this item")
        if way == "exit":
            raise SystemExit("this item")
        os.kill(os.getpid(), signal.SIGKILL)
    numbers = list(drawn(item))
    return {"sum": sum(numbers), "numbers": numbers, "digest": digest(item)}


def drawn(item: int) -> Iterator[float]:
    """Numbers of an item's own generator."""
    rng = random.Random(item)
    for _ in range(5):
        yield rng.random()


def play(program: Program) -> list[str]:
    """Play it; returns what was wrong."""
    stage = MapPlay(program)
    return stage.finished(stage.play)
