"""`corral.map` on a cluster: every site has a crew, and is given items in portions.

results = corral.map(score, candidates, cluster="auto")
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from corral.cluster.cluster import Cluster, ClusterOptions
from corral.cluster.engine import Engine
from corral.cluster.links import LinkOptions, Links
from corral.cluster.room import room_for
from corral.cluster.shipping import importable_with, packages_of
from corral.engine.crew import CrewOptions
from corral.engine.faults.restart_limits import RestartBudget
from corral.errors import Fault

# Items that a worker is given at a time: a call costs as much as 3 ms.
ITEMS_PER_WORKER = 2


def map_on(
    cluster: Cluster | str,
    fn: Callable[[Any], Any],
    items: Iterable[Any],
    options: CrewOptions,
    engine: Engine | None = None,
) -> list[Any]:
    """Map at the sites of a cluster, or of the one at an address."""
    with _links_for(cluster, fn, options, engine) as links:
        return _Map(links, items, options.workers or links.options.cpus).over()


@contextmanager
def _links_for(
    cluster: Cluster | str,
    fn: Callable[[Any], Any],
    options: CrewOptions,
    engine: Engine | None,
) -> Iterator[Links]:
    def hire(number: int, generation: int) -> tuple[str, tuple[Any, ...]]:
        return "hire", (options, fn, generation)

    if isinstance(cluster, Cluster):
        with cluster.crews(hire) as links:
            yield links
        return
    asked = ClusterOptions(address=cluster)
    if engine is None:
        from corral.cluster.ray_engine import RayEngine

        engine = RayEngine(asked.address)
    try:
        cpus, sites, _ = room_for(engine, None, None, 1 << 30)
        restarts = options.on_fault == "restart"
        wanted = LinkOptions(
            cpus,
            packages_of(fn),
            importable_with(None),
            None,
            restarts,
            RestartBudget(options.max_restarts),
        )
        links = Links(engine, wanted, hire)
        try:
            links.start(sites)
            yield links
        finally:
            links.close()
    finally:
        engine.close()


class _Map:
    """One map: which site has which items."""

    def __init__(self, links: Links, items: Iterable[Any], workers: int) -> None:
        self._links, self._size = links, workers * ITEMS_PER_WORKER
        self._items, self._next = iter(items), 0
        # First index and items of portions that were lost with their site.
        self._again: deque[tuple[int, list[Any]]] = deque()
        self._at: dict[int, tuple[int, list[Any]]] = {}  # by site
        self._results: dict[int, Any] = {}

    def over(self) -> list[Any]:
        """All results, in the order of the items."""
        links = self._links
        for number in range(len(links.sites)):
            self._hand_out(number)
        while self._at:
            for number, one in links.gather([*self._at], first=True).items():
                first, items = self._at.pop(number)
                if isinstance(one, Fault):
                    self._again.append((first, items))
                    links.restart(one)
                else:
                    self._results |= dict(enumerate(one.value, first))
                self._hand_out(number)
        return [self._results[index] for index in range(len(self._results))]

    def _hand_out(self, number: int) -> None:
        if self._again:
            first, items = self._again.popleft()
        else:
            first, items = self._next, list(islice(self._items, self._size))
            self._next += len(items)
        if items:
            self._links.send(number, "map", (first, items))
            self._at[number] = first, items
