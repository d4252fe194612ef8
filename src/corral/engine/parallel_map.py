"""A plain parallel map: a crew that lives for one call.

scores = corral.map(score, candidates, per_worker=load_model)
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from corral.engine.crew import CrewOptions, MapKeywords, check_function, map_once
from corral.engine.keywords import checked_keywords
from corral.errors import Fault

if TYPE_CHECKING:
    from typing import Unpack

Item = TypeVar("Item")
Result = TypeVar("Result")

_NO_MORE_ITEMS = object()


@overload
def map(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    on_fault: Literal["raise"] = "raise",
    cluster: Any = None,
    **options: Unpack[MapKeywords],
) -> list[Result]: ...


@overload
def map(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    on_fault: str,
    cluster: Any = None,
    **options: Unpack[MapKeywords],
) -> list[Result | Fault]: ...


@checked_keywords(onward=CrewOptions)
def map(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    cluster: Any = None,
    **options: Any,
) -> Sequence[Any]:
    """Call `fn` with every item, in parallel; the results in the order of the items.

    Each worker has one item at a time and gets the next when it is free. `items` is
    read no faster than that, so it may be a generator of any length. The global random
    generators of the workers are seeded differently on every call: for reproducible
    results, seed from the item.

    Args:
        fn: called in the workers; lambdas and closures work.
        items: any iterable.
        cluster: a `corral.Cluster`, or the address of a Ray cluster: every site has a
            crew, with `workers` for each of them.
        **options: everything that `corral.Crew` takes; `workers` are no more than the
            items.

    Raises:
        ItemError: `fn` raised; it names the item, and the cause is what `fn` raised.
        WorkerDied: a worker process ended; it names the item it had.
        WorkerHung: an item took too long; it shows where the worker was.
        StartError: `worker_init` or `per_worker` raised.
        FactoryError: the function or an item cannot be pickled.

    Before anything is raised, every worker is ended: a process at once, or a second
    later if it is busy; a thread when its item is done.

    Example:
        >>> corral.map(lambda x: x * x, range(5), backend="serial")
        [0, 1, 4, 9, 16]
    """
    check_function(fn)
    asked = CrewOptions(**options)
    if cluster is not None:
        # By name: it is a room above this one.
        there = importlib.import_module("corral.cluster.map_items")
        return list(there.map_on(cluster, fn, items, asked))
    # No more workers than items, where their number is known.
    count = min(asked.wanted_workers, max(1, operator.length_hint(items, 1 << 62)))
    pending = iter(items)
    first = next(pending, _NO_MORE_ITEMS)
    if first is _NO_MORE_ITEMS:
        return []
    return map_once(replace(asked, workers=count), fn, chain([first], pending))
