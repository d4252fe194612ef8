"""Workers that stay: `corral.map`, call after call, without starting them again.

with corral.Crew(workers=8, per_worker=load_model, shared={"goal": goal}) as crew:
    for _ in range(100):
        scores = crew.map(score, candidates)
        crew.update(goal=next_goal(scores))
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from corral.core import EnvSpec
from corral.engine.executors.assign import usable_cores
from corral.engine.executors.contract import Assignment, closed_on_error
from corral.engine.executors.devices import devices_for
from corral.engine.executors.placement import (
    EXECUTORS,
    check_workers,
    require_processes,
)
from corral.engine.keywords import (
    check_arrays,
    check_callable,
    check_choice,
    check_count,
    check_limit,
    checked_keywords,
)
from corral.engine.layout.codec import Codecs
from corral.engine.map_run import OTHER_ITEMS_SECONDS, MapRun
from corral.engine.pool.state import OPEN, SENDING, Lifecycle, WorkersOwner
from corral.engine.transport.segment import Arrays, Segment
from corral.engine.transport.shared_arrays import as_array, shareable
from corral.engine.worker import serialization
from corral.engine.worker.commands import MapCall, ShardOptions
from corral.errors import ClosedError, CorralError, OptionError, OrderError

if TYPE_CHECKING:
    from typing import Unpack

Item = TypeVar("Item")


class MapKeywords(TypedDict, total=False):
    """The keywords of `corral.map` but `on_fault`, for type checkers."""

    max_restarts: int
    item_timeout: float | None
    workers: int | None
    backend: str
    per_worker: Callable[[], Any] | None
    shared: dict[str, NDArray[Any]] | None
    worker_init: Callable[[], Any] | None
    threads_per_worker: int | None
    devices: Sequence[str]


class CrewKeywords(MapKeywords, total=False):
    """The keywords of `corral.Crew`."""

    on_fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CrewOptions:
    """The options of a crew, which `corral.Crew` documents; checked when made."""

    on_fault: str = "raise"
    max_restarts: int = 3
    item_timeout: float | None = None
    workers: int | None = None
    backend: str = "process"
    per_worker: Callable[[], Any] | None = None
    shared: dict[str, NDArray[Any]] | None = None
    worker_init: Callable[[], Any] | None = None
    threads_per_worker: int | None = 1
    devices: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, EXECUTORS)
        check_workers(self.workers, self.backend)
        if self.threads_per_worker is not None:
            check_count("threads_per_worker", self.threads_per_worker)
        check_choice("on_fault", self.on_fault, ("raise", "restart"))
        check_count("max_restarts", self.max_restarts, least=0)
        check_limit("item_timeout", self.item_timeout)
        check_callable("worker_init", self.worker_init, "worker_init()")
        check_callable("per_worker", self.per_worker, "per_worker()")
        check_arrays("shared", self.shared)
        if self.on_fault == "restart" or self.item_timeout is not None:
            require_processes('on_fault="restart" or item_timeout', self.backend)

    def sendable(self, fn: Callable[..., Any]) -> Any:
        """The function as it travels to the workers; raises if it cannot."""
        if self.backend != "process":
            return fn
        return serialization.Unpacked(serialization.pack(fn, "the function"))

    @property
    def restarts(self) -> int | None:
        """How often an item may be run again; None if the first fault is raised."""
        return self.max_restarts if self.on_fault == "restart" else None

    @property
    def wanted_workers(self) -> int:
        """How many workers, if there is enough to do."""
        return 1 if self.backend == "serial" else int(self.workers or usable_cores())

    def assignment(self) -> Assignment:
        """What the executor is given: workers without slots."""
        return Assignment(
            factories=[],
            # Empty, but not alike: generators are seeded by where a shard starts.
            shards=[range(worker, worker) for worker in range(self.wanted_workers)],
            options=ShardOptions(root_seed=int.from_bytes(os.urandom(7), "little")),
            worker_init=self.worker_init,
            per_worker=self.per_worker,
            shared=dict(self.shared or {}),
            threads_per_worker=self.threads_per_worker,
            devices=devices_for(self.devices),
            cores=usable_cores(),
            item_timeout=self.item_timeout,
        )


class Crew(WorkersOwner):
    """Workers that stay, for many calls of `map`.

    Args:
        workers: number of workers (default: the usable cores).
        per_worker: builds `this_worker().resource`, once in each worker.
        shared: read-only arrays, one copy in memory, in `this_worker().shared`;
            `update` changes them, `share` adds others.
        devices: devices of the workers, round robin, as `this_worker().device`; "auto"
            for the CUDA devices that are there, or else the CPU.
        worker_init: called once in each worker, before anything else.
        threads_per_worker: threads for OMP, BLAS and torch in worker processes; None
            leaves them unchanged.
        backend: "process", "thread" or "serial"; the last two support neither restarts
            nor timeouts.
        on_fault: "raise", or "restart": an item is run again if the function raised or
            if its worker died or hung, in which case the worker is replaced. An item
            that keeps failing does not stop the others: its result is its
            `corral.errors.Fault`. A worker that died without an item is replaced in
            either case.
        max_restarts: how often an item may be run again.
        item_timeout: seconds allowed for one item (default: no limit).

    The global random generators of the workers are seeded differently in every crew.
    A crew belongs to the process and the thread that made it.

    Raises:
        StartError: `worker_init` or `per_worker` raised.

    Example:
        >>> with corral.Crew(backend="serial") as crew:
        ...     crew.map(abs, [-1, 2]), crew.map(str, [3])
        ([1, 2], ['3'])
    """

    @checked_keywords(onward=CrewOptions)
    def __init__(self, **options: Unpack[CrewKeywords]) -> None:
        self._start(CrewOptions(**options))

    def _start(self, options: CrewOptions, stays: bool = True) -> None:
        self._options, self._stays = options, stays
        self._lifecycle = Lifecycle("crew")
        self._running = False
        assignment = options.assignment()
        if stays and options.backend != "process":
            # A copy, as with processes: only `update` changes it.
            assignment.shared = {n: np.array(a) for n, a in assignment.shared.items()}
        self._executor = EXECUTORS[options.backend](assignment)
        self._arrays = CrewArrays(self._executor.shared, options.backend == "process")
        self._free = list(range(options.wanted_workers))
        with closed_on_error(self._executor, OTHER_ITEMS_SECONDS):
            self._executor.build()
            # Binding wants codecs, also for no slots at all.
            self._executor.bind(Codecs.of(EnvSpec(Discrete(1), Discrete(1))))
        self._executor.on_return = self._free.append
        self._lifecycle.open()

    @property
    def workers(self) -> int:
        """Number of workers."""
        return self._options.wanted_workers

    # Items ----------------------------------------------------------------------------

    def map(self, fn: Callable[[Item], Any], items: Iterable[Item]) -> list[Any]:
        """Call `fn` with every item; the results are in the order of the items.

        As `corral.map`, which has the errors, on the workers of this crew. `fn` is sent
        once to each worker. After an error the crew can be used again: a process that
        is still busy a second later is replaced, a thread finishes its item first.

        Args:
            fn: called in the workers; lambdas and closures work.
            items: any iterable.
        """
        check_function(fn)
        self._check()
        return self._run(self._options.sendable(fn), items)

    def _run(self, function: Any, items: Iterable[Any]) -> list[Any]:
        """Map a function that is `sendable`."""
        # Also a worker that an interrupted call has left with an item: its answer is
        # dropped. One that is being replaced is appended when it is there.
        self._free[:] = self._executor.present
        run = MapRun(
            self._executor,
            self._arrays.call(function),
            self._free,
            travels=self._options.backend == "process",
            restarts=self._options.restarts,
        )
        life = self._lifecycle
        try:
            self._running, life.state = True, SENDING
            run.over(self._while_open(items))
            if life.state == SENDING:  # else a signal handler has closed the crew
                life.state = OPEN
        except BaseException:
            self._recover(run)
            raise
        finally:
            self._running = False
        return run.results

    def _while_open(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items; what makes them may close the crew."""
        for item in items:
            if self._lifecycle.state != SENDING:
                raise ClosedError("this crew was closed while it was running a map")
            yield item

    def _recover(self, run: MapRun) -> None:
        """Leave no worker with an item; if that fails, only `close` is safe."""
        if not self._stays:
            self.close(OTHER_ITEMS_SECONDS)
        elif self._lifecycle.state == SENDING:
            with suppress(CorralError):  # Ctrl-C came in the middle of a message
                run.settle()
                self._lifecycle.state = OPEN

    def _check(self) -> None:
        """Raise unless the crew can be used now, from here."""
        if self._running:
            raise OrderError(
                "this crew is running a map; wait for its results, or make another crew"
            )
        self._lifecycle.check()

    # Shared arrays --------------------------------------------------------------------

    @property
    def version(self) -> int:
        """How often the shared arrays were changed."""
        return self._arrays.version

    def update(self, **arrays: NDArray[Any]) -> int:
        """Write new values into shared arrays; items of the next `map` see them.

        There is one copy of the values, and nothing is sent to the workers but the
        version, as `this_worker().version`.

        Args:
            arrays: by name, of the same shape as before.

        Returns:
            The version, which counts the updates.

        Raises:
            OptionError: there is no array of that name, or the values do not fit it.
        """
        self._check()
        return self._arrays.update(arrays)

    def share(self, **arrays: NDArray[Any]) -> int:
        """Share more arrays, or arrays of another shape under known names.

        They are copied once, into memory that all workers open before their first item
        of the next `map`.

        Args:
            arrays: by name, as `shared` of the crew itself.

        Returns:
            The version of the shared arrays.

        Raises:
            OptionError: an array has Python objects in it.
        """
        self._check()
        return self._arrays.share(arrays)

    def _end_workers(self, timeout: float | None) -> None:
        super()._end_workers(timeout)
        self._arrays.close()


def map_once(
    options: CrewOptions, fn: Callable[[Any], Any], items: Iterable[Any]
) -> list[Any]:
    """The only map of a crew, which an error closes."""
    function = options.sendable(fn)  # before a worker is started
    crew = Crew.__new__(Crew)
    crew._start(options, stays=False)
    with crew:
        return crew._run(function, items)


def check_function(fn: object) -> None:
    """Refuse what cannot be called."""
    if not callable(fn):
        raise OptionError(f"fn is {fn!r}; pass a function, or another callable")


# Shared arrays ------------------------------------------------------------------------


class CrewArrays:
    """The shared arrays of one crew.

    Args:
        first: what the workers were started with, as the caller can write to it.
        across_processes: whether workers are processes.

    Attributes:
        version: How often they were changed.
    """

    def __init__(
        self, first: Mapping[str, NDArray[Any]], across_processes: bool
    ) -> None:
        self.version = 0
        self._first = first
        self._across_processes = across_processes
        # The latest last.
        self._later: list[tuple[Segment, Arrays]] = []

    def update(self, given: Mapping[str, Any]) -> int:
        """Write new values; returns the version."""
        arrays = dict(self._first)
        for _, lent in self._later:
            arrays |= lent
        values = {name: as_array(name, value) for name, value in given.items()}
        for name, value in values.items():
            _check_fits(name, value, arrays)
        for name, value in values.items():
            arrays[name][...] = value
        self.version += 1
        return self.version

    def share(self, given: Mapping[str, Any]) -> int:
        """Copy values into new memory; returns the version."""
        values = shareable(given)
        shapes = {name: (one.shape, one.dtype) for name, one in values.items()}
        segment = Segment(shapes, self._across_processes)
        lent = segment.lend()
        for name, value in values.items():
            lent[name][...] = value
        kept = [one for one in self._later if not one[1].keys() <= lent.keys()]
        self._later = [*kept, (segment, lent)]
        self.version += 1
        return self.version

    def call(self, function: Any) -> MapCall:
        """What workers get with their first item of a `map`."""
        segments, arrays = [], dict[str, NDArray[Any]]()
        for segment, lent in self._later:
            if segment.address is not None:
                segments.append(segment.address)
            else:  # views that cannot be written to
                arrays |= {n: np.broadcast_to(a, a.shape) for n, a in lent.items()}
        return MapCall(function, self.version, tuple(segments), arrays)

    def close(self) -> None:
        """Let go of the memory."""
        self._first, self._later = {}, []


def _check_fits(name: str, value: NDArray[Any], arrays: Arrays) -> None:
    """Refuse what cannot be written into the array of that name."""
    another = f"crew.share({name}=...) shares another one"
    if name not in arrays:
        raise OptionError(
            f"update({name}=...): the crew shares no such array; its arrays are: "
            f"{', '.join(arrays) or 'none'}. {another}"
        )
    old = arrays[name]
    if value.shape != old.shape or not np.can_cast(value.dtype, old.dtype, "same_kind"):
        raise OptionError(
            f"update({name}=...) has shape {value.shape} and dtype {value.dtype}; the "
            f"shared array has {old.shape} and {old.dtype}. {another}"
        )
