"""One call of `map`: which worker has which item, and the results.

items ──► the next free worker ──► results, in the order of the items
  ▲             │ raised, died or hung
  └─ run again ─┘ (on_fault="restart")
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from corral.engine.executors.contract import Executor
from corral.engine.faults.report import error_for
from corral.engine.faults.restart_limits import restart_delay
from corral.engine.layout.plan import BUSY_SINCE
from corral.engine.worker import serialization
from corral.engine.worker.commands import Ask, MapCall, MapItem
from corral.engine.worker.letters import Reply
from corral.errors import Fault, FaultError

# Seconds for the other workers to finish their items after one of them failed.
OTHER_ITEMS_SECONDS = 1.0


@dataclass(slots=True)
class _Item:
    """One call of the function.

    Attributes:
        given: When it was last given to a worker, by time.perf_counter.
    """

    index: int
    payload: Any
    runs: int = 0
    given: float = 0.0


@dataclass
class MapRun:
    """The items of the workers, and the results.

    Attributes:
        call: What every worker gets with its first item.
        free: The workers without an item; also appended to when one was replaced.
        travels: Whether items are pickled.
        restarts: How often an item may be run again; None if the first fault is raised.
    """

    executor: Executor
    call: MapCall
    free: list[int]
    travels: bool
    restarts: int | None
    # By worker. A worker that is neither free nor busy is being replaced.
    _busy: dict[int, _Item] = field(default_factory=dict)
    # Items to run again, or the item that was read last.
    _waiting: deque[_Item] = field(default_factory=deque)
    # The workers that have the call.
    _told: set[int] = field(default_factory=set)
    # By worker: how often in a row it ended without an item, which costs none.
    _in_vain: Counter[int] = field(default_factory=Counter)
    results: list[Any] = field(default_factory=list)

    def over(self, items: Iterable[Any]) -> None:
        """Run all items; fills `results`."""
        pending = self._read(items)
        self._waiting.extend(islice(pending, 1))
        while self._waiting or self._busy:
            try:
                answers = self._give() if self._waiting and self.free else self._take()
            except FaultError as error:
                self._replace_worker(error.fault)
            else:
                self._sort(answers)
            # Nothing is read ahead, except while all workers are being replaced.
            if not self._waiting and (self.free or not self._busy):
                self._waiting.extend(islice(pending, 1))

    def _read(self, items: Iterable[Any]) -> Iterator[_Item]:
        for index, item in enumerate(items):
            self.results.append(None)
            if self.travels:
                # Unpickled by the worker, so that a failure is this item's fault.
                item = serialization.Unpacked(serialization.pack(item, f"item {index}"))
            yield _Item(index, item)

    def _give(self) -> dict[int, Reply]:
        """Give the next item to a free worker; there are no answers yet."""
        worker, item = self.free.pop(), self._waiting.popleft()
        self._busy[worker] = item
        item.runs += 1
        item.given = time.perf_counter()
        call = None if worker in self._told else self.call
        self._told.add(worker)
        self.executor.ask({worker: Ask("run", payload=MapItem(item.payload, call))})
        return {}

    def _take(self) -> dict[int, Reply]:
        """Wait for results, or for a replaced worker."""
        free = len(self.free)
        return self.executor.first_answers(self._busy, lambda: len(self.free) > free)

    def _sort(self, answers: dict[int, Reply]) -> None:
        # First: a fault may be raised, and the other workers are free all the same.
        items = [self._busy[worker] for worker in answers]
        self._release(answers)
        for item, (worker, reply) in zip(items, answers.items(), strict=True):
            self._in_vain.pop(worker, None)
            if reply.faults:
                self._failed(item, reply.faults[0])
            else:
                (self.results[item.index],) = reply.values

    def _failed(self, item: _Item, fault: Fault) -> None:
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
        if fault.kind != "start":
            fault = replace(fault, command="map")
        if worker is None or not self.travels:
            raise error_for(fault) from None
        self.executor.last_letters(worker)  # sorts its answer to the others
        self._sort(self.executor.answered(self._busy))
        item = self._busy.pop(worker, None)
        began = self.executor.control.vitals[worker, BUSY_SINCE]
        if item is not None and began < item.given:
            # It died while it waited, so this item was never begun.
            item.runs -= 1
            self._waiting.appendleft(item)
            item = None
        tries = self._in_vain[worker] if item is None else item.runs - 1
        if item is not None:
            self._failed(item, fault)
        elif tries >= max(1, self.restarts or 0):
            raise error_for(fault) from None
        else:
            self._in_vain[worker] += 1
        self._start_again(worker, restart_delay(tries))

    def _start_again(self, worker: int, delay: float = 0.0) -> None:
        """Have a worker replaced that ended."""
        if worker in self.free:
            self.free.remove(worker)
        self._busy.pop(worker, None)
        self._told.discard(worker)
        self.executor.replace(worker, None, delay)

    # After an error -------------------------------------------------------------------

    def settle(self) -> None:
        """Leave no worker with an item: wait a moment, then give up those still busy.

        A worker that ended is replaced.
        """
        deadline = time.monotonic() + OTHER_ITEMS_SECONDS

        def enough() -> bool:
            # After Ctrl-C some may not have been asked.
            left = any(self.executor.is_busy(worker) for worker in self._busy)
            return not left or time.monotonic() >= deadline

        settled = False
        while not settled:
            try:
                self.executor.check_workers()
                answers = self.executor.first_answers(self._busy, enough)
            except FaultError as error:
                if error.fault.worker is None:
                    raise
                self._start_again(error.fault.worker)
            else:
                self._release(answers)
                settled = enough()
        for worker in filter(self.executor.is_busy, self._busy):
            self.executor.give_up(worker)

    def _release(self, workers: Iterable[int]) -> None:
        for worker in workers:
            del self._busy[worker]
            self.executor.forget_answer(worker)
            self.free.append(worker)
