"""A plain parallel map on the same supervised workers as a pool's, but without slots.

scores = corral.map(score, candidates, per_worker=load_model)

items ──► the next free worker ──► results, in the order of the items
  ▲             │ raised, died or hung
  └─ run again ─┘ (on_fault="restart")
"""

from __future__ import annotations

import operator
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Literal, TypeVar, overload

from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from corral.core import EnvSpec
from corral.engine.executors.assign import usable_cores
from corral.engine.executors.contract import Assignment, Executor, closed_on_error
from corral.engine.executors.placement import (
    EXECUTORS,
    check_workers,
    require_processes,
)
from corral.engine.faults.report import error_for
from corral.engine.faults.restart_limits import restart_delay
from corral.engine.keywords import (
    check_choice,
    check_count,
    check_limit,
    checked_keywords,
)
from corral.engine.layout.codec import Codecs
from corral.engine.worker import serialization
from corral.engine.worker.commands import Ask, ShardOptions
from corral.engine.worker.letters import Reply
from corral.errors import Fault, FaultError, OptionError

Item = TypeVar("Item")
Result = TypeVar("Result")

OTHER_ITEMS_SECONDS = 1.0
"""Seconds for the other workers to finish their items after one of them failed."""

_NO_MORE_ITEMS = object()


@overload
def map(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    on_fault: Literal["raise"] = "raise",
    max_restarts: int = 3,
    item_timeout: float | None = None,
    workers: int | None = None,
    backend: str = "process",
    per_worker: Callable[[], Any] | None = None,
    shared: dict[str, NDArray[Any]] | None = None,
    worker_init: Callable[[], Any] | None = None,
    threads_per_worker: int | None = 1,
    devices: Sequence[str] = (),
) -> list[Result]: ...


@overload
def map(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    on_fault: str,
    max_restarts: int = 3,
    item_timeout: float | None = None,
    workers: int | None = None,
    backend: str = "process",
    per_worker: Callable[[], Any] | None = None,
    shared: dict[str, NDArray[Any]] | None = None,
    worker_init: Callable[[], Any] | None = None,
    threads_per_worker: int | None = 1,
    devices: Sequence[str] = (),
) -> list[Result | Fault]: ...


@checked_keywords()
def map(
    fn: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    on_fault: str = "raise",
    max_restarts: int = 3,
    item_timeout: float | None = None,
    workers: int | None = None,
    backend: str = "process",
    per_worker: Callable[[], Any] | None = None,
    shared: dict[str, NDArray[Any]] | None = None,
    worker_init: Callable[[], Any] | None = None,
    threads_per_worker: int | None = 1,
    devices: Sequence[str] = (),
) -> Sequence[Any]:
    """Call `fn` with every item, in parallel; the results in the order of the items.

    Each worker has one item at a time and gets the next when it is free. `items` is
    read no faster than that, so it may be a generator of any length. The global random
    generators of the workers are seeded differently on every call: for reproducible
    results, seed from the item.

    Args:
        fn: called in the workers; lambdas and closures work.
        items: any iterable.
        on_fault: "raise", or "restart": an item is run again if `fn` raised or if its
            worker died or hung, in which case the worker is replaced. An item that
            keeps failing does not stop the others: its result is its
            `corral.errors.Fault`.
        max_restarts: how often an item may be run again.
        item_timeout: seconds allowed for one item (default: no limit).
        workers: number of workers (default: the usable cores, or the items if fewer).
        backend: "process", "thread" or "serial"; the last two support neither restarts
            nor timeouts.
        per_worker: builds `this_worker().resource`, once in each worker.
        shared: read-only arrays, one copy in memory, in `this_worker().shared`.
        worker_init: called once in each worker, before anything else.
        threads_per_worker: threads for OMP, BLAS and torch in worker processes; None
            leaves them unchanged.
        devices: devices of the workers, round robin, as `this_worker().device`.

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
    if not callable(fn):
        raise OptionError(f"the function is {fn!r}, which cannot be called")
    check_choice("backend", backend, EXECUTORS)
    check_workers(workers, backend)
    check_choice("on_fault", on_fault, ("raise", "restart"))
    check_count("max_restarts", max_restarts, least=0)
    check_limit("item_timeout", item_timeout)
    if on_fault == "restart" or item_timeout is not None:
        require_processes('on_fault="restart" or item_timeout', backend)
    wanted = 1 if backend == "serial" else int(workers or usable_cores())
    # No more than items, where their number is known.
    count = min(wanted, max(1, operator.length_hint(items, wanted)))
    pending = iter(items)
    first = next(pending, _NO_MORE_ITEMS)
    if first is _NO_MORE_ITEMS:
        return []
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
            item_timeout=item_timeout,
        )
    )
    restarts = max_restarts if on_fault == "restart" else None
    with closed_on_error(executor, OTHER_ITEMS_SECONDS):
        executor.build()
        # Binding wants codecs, also for no slots at all.
        executor.bind(Codecs.of(EnvSpec(Discrete(1), Discrete(1))))
        run = _MapRun(executor, backend == "process", restarts)
        run.over(chain([first], pending))
    executor.close(None)
    return run.results


@dataclass(slots=True)
class _MapItem:
    """One call of `fn`."""

    index: int
    payload: Any
    runs: int = 0


@dataclass
class _MapRun:
    """One call of `map`: the items of the workers, and the results."""

    executor: Executor
    travels: bool
    """Whether items are pickled."""
    restarts: int | None
    """How often an item may be run again; None if the first fault is raised."""
    _busy: dict[int, _MapItem] = field(default_factory=dict)
    """By worker. A worker that is neither free nor busy is being replaced."""
    _waiting: deque[_MapItem] = field(default_factory=deque)
    """Items to run again, or the item that was read last."""
    _in_vain: Counter[int] = field(default_factory=Counter)
    """By worker: how often in a row it ended without an item."""
    results: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._free = list(range(len(self.executor.shards)))
        self.executor.on_return = self._free.append

    def over(self, items: Iterable[Any]) -> None:
        """Run all items; fills `results`."""
        pending = self._read(items)
        self._waiting.extend(islice(pending, 1))
        while self._waiting or self._busy:
            try:
                answers = self._give() if self._waiting and self._free else self._take()
            except FaultError as error:
                self._replace_worker(error.fault)
            else:
                self._sort(answers)
            # Nothing is read ahead, except while all workers are being replaced.
            if not self._waiting and (self._free or not self._busy):
                self._waiting.extend(islice(pending, 1))

    def _read(self, items: Iterable[Any]) -> Iterator[_MapItem]:
        for index, item in enumerate(items):
            self.results.append(None)
            if self.travels:
                # Unpickled by the worker, so that a failure is this item's fault.
                item = serialization.Unpacked(serialization.pack(item, f"item {index}"))
            yield _MapItem(index, item)

    def _give(self) -> dict[int, Reply]:
        """Give the next item to a free worker; there are no answers yet."""
        worker, item = self._free.pop(), self._waiting.popleft()
        self._busy[worker] = item
        item.runs += 1
        self.executor.ask({worker: Ask("run", payload=item.payload)})
        return {}

    def _take(self) -> dict[int, Reply]:
        """Wait for results, or for a replaced worker."""
        free = len(self._free)
        return self.executor.first_answers(lambda: len(self._free) > free)

    def _sort(self, answers: dict[int, Reply]) -> None:
        for worker, reply in answers.items():
            item = self._busy.pop(worker)
            self._free.append(worker)
            self._in_vain.pop(worker, None)
            if reply.faults:
                self._failed(item, reply.faults[0])
            else:
                (self.results[item.index],) = reply.values

    def _failed(self, item: _MapItem, fault: Fault) -> None:
        """Run an item again, or keep its fault as its result."""
        fault = replace(fault, item=item.index, restarts=item.runs - 1)
        if self.restarts is None:
            raise error_for(fault)
        if item.runs <= self.restarts:
            self._waiting.append(item)
        else:
            self.results[item.index] = replace(fault, gave_up=True)

    def _replace_worker(self, fault: Fault) -> None:
        """Take the answers that a worker left, and replace it."""
        worker = fault.worker
        if worker is None or self.restarts is None:
            if worker is not None and worker in self._busy:
                index = self._busy[worker].index
                fault = replace(fault, command="map", item=index)
            raise error_for(fault) from None
        self.executor.last_letters(worker)  # sorts its answer to the others
        self._sort(self.executor.answered())
        if worker in self._free:
            self._free.remove(worker)
        item = self._busy.pop(worker, None)
        tries = self._in_vain[worker] if item is None else item.runs - 1
        if item is not None:
            self._failed(item, replace(fault, command="map"))
        elif tries >= self.restarts:
            raise error_for(fault) from None
        else:
            self._in_vain[worker] += 1
        self.executor.replace(worker, None, restart_delay(tries))
