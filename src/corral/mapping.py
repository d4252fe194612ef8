"""A plain parallel map on the same supervised workers as a pool's, but without slots.

scores = corral.map(score, candidates, per_worker=load_model)

items ──► whichever worker is free ──► results, in the order of the items
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from corral.core import EnvSpec
from corral.errors import CorralError, Fault, OptionError, WorkerDied
from corral.executors import (
    Executor,
    ProcessExecutor,
    SerialExecutor,
    ThreadExecutor,
    usable_cores,
)
from corral.executors.contract import Assignment
from corral.layout.codec import Codecs
from corral.supervision.report import error_for
from corral.workers import luggage
from corral.workers.commands import Ask
from corral.workers.letters import Reply
from corral.workers.shard import ShardOptions

Item = TypeVar("Item")
Result = TypeVar("Result")

EXECUTORS: dict[str, Callable[[Assignment], Executor]] = {
    "process": ProcessExecutor,
    "thread": ThreadExecutor,
    "serial": SerialExecutor,
}
GRACE = 1.0
"""Seconds for the other workers to finish their items after one of them failed."""

_END = object()


def map(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int | None = None,
    backend: str = "process",
    per_worker: Callable[[], Any] | None = None,
    shared: dict[str, NDArray[Any]] | None = None,
    worker_init: Callable[[], Any] | None = None,
    threads_per_worker: int | None = 1,
    devices: Sequence[str] = (),
) -> list[Result]:
    """Call `fn` with every item, in parallel; the results in the order of the items.

    Each worker has one item at a time and gets the next when it is free; `items` is
    read no faster than that, so it may be a generator of any length. Every worker's
    global random generators are seeded differently on every call: for results that
    can be repeated, seed from the item.

    Args:
        fn: called in the workers; lambdas and closures will do.
        items: anything that can be iterated.
        workers: how many; as many as usable cores by default, or as items if fewer.
        backend: "process", "thread" or "serial".
        per_worker: builds what `this_worker().resource` gives to `fn`.
        shared: read-only arrays, one copy in memory, in `this_worker().shared`.
        worker_init: called once in each worker, before anything else.
        threads_per_worker: for OMP, BLAS and torch in worker processes; None leaves
            them alone.
        devices: handed to workers round robin, as `this_worker().device`.

    Raises:
        ItemError: `fn` raised; it names the item, and the cause is what `fn` raised.
        WorkerDied: a worker process ended; it names the item it had.
        StartError: `worker_init` or `per_worker` raised.
        FactoryError: the function or an item cannot be pickled.

    Whatever is raised, every worker is ended first: a process at once, or a second
    later if it is busy; a thread when its item is done.

    Example:
        >>> corral.map(lambda x: x * x, range(5), backend="serial")
        [0, 1, 4, 9, 16]
    """
    _check(fn, backend, workers)
    pending = iter(items)
    first = next(pending, _END)
    if first is _END:
        return []
    count = _count(items, backend, workers)
    executor = EXECUTORS[backend](
        Assignment(
            factories=[],
            # Empty, but not alike: generators are seeded by where a shard starts.
            shards=[range(worker, worker) for worker in range(count)],
            options=ShardOptions(root_seed=int.from_bytes(os.urandom(7), "little")),
            worker_init=worker_init,
            per_worker=per_worker,
            function=fn,
            shared=dict(shared or {}),
            threads_per_worker=threads_per_worker,
            devices=tuple(devices),
            cores=usable_cores(),
        )
    )
    try:
        executor.build()
        executor.bind(_no_codecs())
        results = _Run(executor, backend == "process").over(_chain(first, pending))
    except BaseException:
        executor.close(GRACE)
        raise
    executor.close(None)
    return results


class _Run:
    """One map under way: who has which item, and what came back."""

    def __init__(self, executor: Executor, travels: bool) -> None:
        self._executor = executor
        self._travels = travels
        self._free = list(range(len(executor.shards)))
        self._busy: dict[int, int] = {}
        """Worker -> the place of its item."""
        self._results: list[Any] = []
        self._taken = 0

    def over(self, items: Iterator[Any]) -> list[Any]:
        try:
            for index, item in enumerate(items):
                self._give(index, item)
                if not self._free:
                    self._take()
            while self._busy:
                self._take()
        except WorkerDied as error:
            raise self._named(error.fault) from None
        return self._results

    def _give(self, index: int, item: Any) -> None:
        payload = item
        if self._travels:
            # Opened beside the function, so that one that cannot be is its own fault.
            payload = luggage.Unpacked(luggage.pack(item, f"item {index}"))
        worker = self._free.pop()
        self._busy[worker] = index
        self._results.append(None)
        self._executor.ask({worker: Ask("run", payload=payload)})

    def _take(self) -> None:
        for worker, reply in self._executor.first_answers(self._taken).items():
            self._taken += 1
            self._free.append(worker)
            index = self._busy.pop(worker)
            self._results[index] = _value(reply, index)

    def _named(self, fault: Fault) -> CorralError:
        item = None if fault.worker is None else self._busy.get(fault.worker)
        return error_for(replace(fault, command="map", item=item))


def _value(reply: Reply, index: int) -> Any:
    if reply.faults:
        raise error_for(replace(reply.faults[0], item=index))
    (value,) = reply.values
    return value


def _check(fn: Any, backend: str, workers: int | None) -> None:
    if not callable(fn):
        raise OptionError(f"the function is {fn!r}, which cannot be called")
    if backend not in EXECUTORS:
        raise OptionError(
            f"backend is {backend!r}; choose one of {', '.join(EXECUTORS)}"
        )
    whole = isinstance(workers, int) and not isinstance(workers, bool)
    if workers is not None and not (whole and workers >= 1):
        raise OptionError(f"workers is {workers!r}; it must be an integer >= 1")
    if backend == "serial" and workers not in (None, 1):
        raise OptionError(f"backend='serial' has one worker, not workers={workers}")


def _count(items: Iterable[Any], backend: str, workers: int | None) -> int:
    """How many workers, but no more than there are items, where that is known."""
    if backend == "serial":
        return 1
    wanted = workers or usable_cores()
    try:
        return min(wanted, max(1, len(items)))  # type: ignore[arg-type]
    except TypeError:
        return wanted


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _no_codecs() -> Codecs:
    """Binding wants codecs, also for no slots at all."""
    return Codecs.of(EnvSpec(Discrete(1), Discrete(1)))
