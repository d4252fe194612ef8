"""The pool itself: send, recv, and questions."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, perf_counter
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from corral.adapters.factories import Wrap, factories_for
from corral.core import Autoreset, Factory, Step
from corral.errors import (
    ClosedError,
    CorralError,
    Fault,
    OptionError,
    OrderError,
    OwnershipError,
    WorkerDied,
)
from corral.executors import place, usable_cores
from corral.executors.assign import place_of
from corral.executors.contract import Assignment
from corral.layout.codec import Codecs
from corral.layout.columns import Columns
from corral.layout.entries import Column
from corral.layout.plan import TICKET_MASK
from corral.pool.actions import Actions
from corral.pool.clock import Clock
from corral.pool.inbox import Inbox
from corral.pool.ledger import Ledger, Slots
from corral.pool.loans import Loans
from corral.pool.options import (
    Episodes,
    FaceOptions,
    info_choice,
    mode_of,
    root_seed,
)
from corral.pool.questions import Question
from corral.pool.rows import NO_INFOS, Row, gather
from corral.pool.stats import Stats, Times, WorkerStats
from corral.supervision.memory import memory_of
from corral.supervision.report import error_for, one_error_for
from corral.workers import commands
from corral.workers.commands import Verb
from corral.workers.shard import ShardOptions


class Pool:
    """Many environments behind send and recv.

    Args:
        env: a registered id, a factory, or one factory per slot.
        num_envs: how many slots; known already when a list of factories is given.
        env_kwargs: keyword arguments for the id or factory.
        wrappers: put around every env, the first one innermost.
        backend: "auto" measures; "serial", "thread" and "process" do as they say.
        workers: how many threads or processes; as many as usable cores by default.
        isolation: "slot" gives every slot a process of its own.
        autoreset: what happens at the end of an episode; can be changed per send.
        seed: the root of every episode's seed; drawn, and told by `pool.seed`, if None.
        infos: "all", "final", "none", or the keys to keep.
        isolate_rng: give each slot its own global random generators.
        sample_task: `sample_task(slot, episode, rng) -> task`, called in the worker for
            every episode that was not given one.
        worker_init: called once in each worker, before anything else.
        per_worker: builds what `this_worker().resource` gives to envs.
        shared: read-only arrays, one copy in memory, in `this_worker().shared`.
        threads_per_worker: for OMP, BLAS and torch in worker processes; None leaves
            them alone.
        devices: handed to workers round robin, as `this_worker().device`.
        copy: whether `recv` gives copies by default, or views into the block.
        debug: raise when a view is kept longer than it lives.
        start_timeout: seconds for a worker process to build its envs; needs processes.
        close_timeout: seconds for envs to finish when the pool is closed.
    """

    def __init__(
        self,
        env: str | Factory | Sequence[Factory],
        num_envs: int | None = None,
        *,
        env_kwargs: dict[str, Any] | None = None,
        wrappers: Sequence[Wrap] = (),
        backend: str = "auto",
        workers: int | None = None,
        isolation: str | None = None,
        autoreset: Autoreset = "same_step",
        seed: int | None = None,
        infos: str | Sequence[str] = "all",
        isolate_rng: bool = False,
        sample_task: Callable[[int, int, np.random.Generator], Any] | None = None,
        worker_init: Callable[[], Any] | None = None,
        per_worker: Callable[[], Any] | None = None,
        shared: dict[str, NDArray[Any]] | None = None,
        threads_per_worker: int | None = 1,
        devices: Sequence[str] = (),
        copy: bool = True,
        debug: bool = False,
        start_timeout: float | None = None,
        close_timeout: float = 10.0,
        _face: FaceOptions | None = None,
    ) -> None:
        # unbuilt -> open <-> sending -> closed; broken once a worker died, forked in a
        # child of the process that made it.
        self._state = "unbuilt"
        self._face = _face or FaceOptions()
        self._mode = mode_of(autoreset)
        self.autoreset = autoreset
        self.seed = root_seed(seed)
        self.copy = copy
        self.debug = debug
        self._close_timeout = close_timeout
        assignment = Assignment(
            factories=factories_for(env, num_envs, env_kwargs, wrappers),
            shards=[],
            options=ShardOptions(
                root_seed=self.seed,
                seeded=not self._face.bare_resets,
                infos=info_choice(infos),
                sample_task=sample_task,
                isolate_rng=isolate_rng,
            ),
            worker_init=worker_init,
            per_worker=per_worker,
            shared=dict(shared or {}),
            threads_per_worker=threads_per_worker,
            devices=tuple(devices),
            cores=usable_cores(),
            start_timeout=start_timeout,
        )
        self.num_envs = assignment.slots
        self._owner = threading.get_ident()
        self._executor, self.layout = place(assignment, backend, workers, isolation)
        self._open()

    def _open(self) -> None:
        try:
            self.specs = self._executor.build()
            self.spec = self._face.agree(self.specs)
            codecs = Codecs.of(self.spec)
            self._views = self._executor.bind(codecs)
        except BaseException:
            self._executor.close(2.0)
            self._state = "closed"
            raise
        self._ledger = Ledger(self.num_envs)
        self._actions = Actions(codecs.action, self._views)
        columns = Columns(self._views.arena, self._views.presence)
        self._inbox = Inbox(codecs.obs, columns)
        self._codec = codecs.obs
        self._rows = [
            Row(codecs.obs, self._views, row, self._ledger.all) for row in (0, 1)
        ]
        self._loans = Loans()
        self.asked = 0
        """How many questions were put to the envs."""
        self._clock = Clock()
        self._state = "open"
        _open_pools.add(self)

    # Sending --------------------------------------------------------------------------

    def send_reset(
        self,
        slots: Slots | None = None,
        *,
        seed: int | None = None,
        seeds: Sequence[int | None] | None = None,
        options: dict[str, Any] | Sequence[dict[str, Any] | None] | None = None,
        tasks: Sequence[Any] | None = None,
    ) -> None:
        """Start an episode in these slots, or in all.

        Args:
            slots: which; all if None.
            seed: a new root seed; every slot counts its episodes from the start again.
            seeds: one per slot asked, for this episode alone.
            options: one dict for all, or one per slot asked.
            tasks: one per slot asked.
        """
        self._check()
        self._clock.enter(not self._ledger.waiting)
        chosen = self._ledger.choose(slots)
        self._ledger.check_idle(chosen)
        episodes = Episodes(len(chosen), seeds, options, tasks)
        numbers: list[int] = []
        messages: list[tuple[int, Any]] = []
        for position, slot in enumerate(chosen.tolist()):
            number, message = episodes.at(position)
            numbers.append(number)
            if message:
                worker, index = self._place_of(slot)
                messages.append((worker, commands.Episode(index, **message)))
        self._recall(chosen)
        if seed is not None:
            self._new_root(seed)
        self._executor.reset_seed[chosen] = numbers
        self._tell_each(messages)
        self._state = "sending"
        self._ledger.send(chosen)
        self._ledger.start(chosen)
        self._executor.send(chosen, Verb.RESET, 0)
        self._sent()

    def send(
        self,
        actions: Any,
        slots: Slots | None = None,
        *,
        autoreset: Autoreset | None = None,
    ) -> None:
        """Step these slots, or all; `actions` in the order of `slots`."""
        self._check()
        self._clock.enter(not self._ledger.waiting)
        mode = self._mode if autoreset is None else mode_of(autoreset)
        if slots is not None:
            self._send_some(actions, self._ledger.choose(slots), mode)
            return
        ledger = self._ledger
        if ledger.waiting or ledger.unstarted or self._loans.out:
            self._check_sendable(ledger.all)
        leaves, mailed = self._actions.codec.split(actions, self.num_envs)
        if mailed:
            self._mail_actions(ledger.all, mailed)
        even = ledger.even()
        self._state = "sending"
        ledger.send_all()
        if even:
            wide = self._actions.write_all(leaves, ledger.base)
        else:
            wide = self._actions.write(leaves, ledger.tickets(ledger.all), ledger.all)
        self._executor.send_all(mode | wide)
        self._sent()

    def _sent(self) -> None:
        """The ledger and the workers know the same again.

        Ctrl-C between the two leaves the state "sending", in which nothing but close
        is safe. A signal handler may have closed the pool meanwhile.
        """
        if self._state == "sending":
            self._state = "open"
        self._clock.leave()

    def _send_some(self, actions: Any, slots: NDArray[np.intp], mode: int) -> None:
        self._check_sendable(slots)
        leaves, mailed = self._actions.codec.split(actions, len(slots))
        if mailed:
            self._mail_actions(slots, mailed)
        self._state = "sending"
        self._ledger.send(slots)
        wide = self._actions.write(leaves, self._ledger.tickets(slots), slots)
        self._executor.send(slots, Verb.STEP, mode | wide)
        self._sent()

    def send_raw(self, actions: Sequence[Any]) -> None:
        """Step all slots with actions that go to the envs exactly as they are given."""
        self._check()
        self._clock.enter(not self._ledger.waiting)
        slots = self._ledger.all
        self._check_sendable(slots)
        messages: list[tuple[int, Any]] = []
        for slot, action in enumerate(actions):
            worker, index = self._place_of(slot)
            messages.append((worker, commands.RawAction(index, action)))
        self._tell_each(messages)
        self._state = "sending"
        self._ledger.send(slots)
        self._executor.send(slots, Verb.STEP, self._mode)
        self._sent()

    def _mail_actions(self, slots: NDArray[np.intp], mailed: list[Any]) -> None:
        messages: list[tuple[int, Any]] = []
        for position, slot in enumerate(slots.tolist()):
            worker, index = self._place_of(slot)
            values = [column[position] for column in mailed]
            messages.append((worker, commands.Action(index, values)))
        self._tell_each(messages)

    def assign(self, slot: int, task: Any) -> None:
        """Give a task to the slot's first episode that starts after what was sent."""
        self._check()
        (chosen,) = self._ledger.choose([slot]).tolist()
        worker, index = self._place_of(chosen)
        self._tell_each([(worker, commands.Episode(index, task=task))])

    def _new_root(self, seed: int) -> None:
        self.seed = root_seed(seed)
        self._tell_all(commands.Root(self.seed))

    # Receiving ------------------------------------------------------------------------

    def recv(
        self,
        min_slots: int | None = None,
        max_slots: int | None = None,
        *,
        slots: Slots | None = None,
        timeout: float | None = None,
        copy: bool | None = None,
    ) -> Step:
        """Wait for results and take them, slots ascending.

        Args:
            min_slots: wait for this many; for everything under way if None.
            max_slots: take no more than this, those sent to longest ago; all that is
                ready if None.
            slots: wait for these, and take no others.
            timeout: seconds, then TimeoutError; the results stay under way.
            copy: False for views, which stay intact until the slot has been sent to
                twice more. Batches of all slots or of one whole shard are views, any
                other is gathered.
        """
        self._check()
        ledger = self._ledger
        if not ledger.waiting:
            raise OrderError("recv with nothing sent: send or send_reset first")
        copy = self.copy if copy is None else copy
        if slots is not None:
            return self._take(self._awaited(slots, min_slots, max_slots, timeout), copy)
        if min_slots is None and max_slots is None:
            self._wait(ledger.waiting, timeout)
            if ledger.waiting == self.num_envs and ledger.even():
                return self._take_all(copy)
            return self._take(np.flatnonzero(ledger.pending()), copy)
        low, high = self._bounds(min_slots, max_slots)
        done = self._executor.done
        self._wait(low, timeout, lambda: len(ledger.ready(done)) >= low)
        return self._take(ledger.oldest(ledger.ready(done), high), copy)

    def _awaited(
        self, slots: Slots, low: int | None, high: int | None, timeout: float | None
    ) -> NDArray[np.intp]:
        """Wait for these slots, whoever else is ready before them."""
        if low is not None or high is not None:
            raise OptionError("recv takes slots, or min_slots and max_slots, not both")
        ledger, done = self._ledger, self._executor.done
        chosen = np.sort(ledger.choose(slots))
        ledger.check_under_way(chosen)
        deadline = None if timeout is None else monotonic() + timeout
        self._clock.wait()
        while True:
            # In this order: a slot done meanwhile is in neither, never in both.
            ready = len(ledger.ready(done))
            missing = ledger.missing(chosen, done)
            if not missing:
                return chosen
            left = None if deadline is None else deadline - monotonic()
            there = self._reach(
                ready + missing, left, lambda: not ledger.missing(chosen, done)
            )
            if not there:
                raise self._late(missing, timeout)

    def _bounds(self, low: int | None, high: int | None) -> tuple[int, int]:
        waiting = self._ledger.waiting
        high = waiting if high is None else high
        low = min(high, waiting) if low is None else low
        if not 1 <= low <= high:
            raise OptionError(
                f"recv(min_slots={low}, max_slots={high}): needs 1 <= min <= max"
            )
        if low > waiting:
            raise OptionError(
                f"recv(min_slots={low}) would wait for ever: "
                f"{waiting} slots have a command under way"
            )
        return low, high

    def _wait(
        self,
        count: int,
        timeout: float | None,
        enough: Callable[[], bool] | None = None,
    ) -> None:
        if not self._reach(count, timeout, enough):
            raise self._late(count, timeout)

    def _reach(
        self,
        count: int,
        timeout: float | None,
        enough: Callable[[], bool] | None = None,
    ) -> bool:
        """Whether so many results that were not taken yet are there in time."""
        target = self._ledger.taken + count & TICKET_MASK
        self._clock.wait()
        try:
            return self._executor.wait(target, timeout, enough)
        except WorkerDied as error:
            self._bury(error)
        finally:
            self._clock.waited()

    def _late(self, count: int, timeout: float | None) -> TimeoutError:
        return TimeoutError(
            f"{count} results were not there after {timeout} s; "
            f"{self._ledger.waiting} slots have a command under way"
        )

    def _take_all(self, copy: bool) -> Step:
        """Every slot, all on the same row: what `step` does."""
        ledger, inbox = self._ledger, self._inbox
        row = ledger.base & 1
        ledger.take_all()
        letters = self._executor.letters()
        if letters or inbox.letters:
            self._open_letters(letters, ledger.all)
        infos = NO_INFOS
        if self._executor.informed() or inbox.letters:
            infos, new = inbox.infos(ledger.all, row, whole=True)
            self._announce(new)
        step = self._rows[row].step(infos, copy or self.debug)
        if inbox.letters or inbox.always:
            inbox.complete(step)
        if self.debug and not copy:
            self._loans.lend(step, ledger.tickets(ledger.all) & 1)
        self._clock.leave()
        return step

    def _take(self, slots: NDArray[np.intp], copy: bool) -> Step:
        """Some slots, or slots on different rows."""
        self._ledger.take(slots)
        self._open_letters(self._executor.letters(), slots)
        rows = self._ledger.tickets(slots) & 1
        infos, new = self._inbox.infos(slots, rows, whole=False)
        self._announce(new)
        part = None if copy else self._whole_shard(slots, rows)
        if part is None:
            step = gather(self._codec, self._views, rows, slots, infos)
        else:
            row = Row(self._codec, self._views, int(rows[0]), slots, part)
            step = row.step(infos, copy=False)
        self._inbox.complete(step)
        if self.debug and part is not None:
            self._loans.lend(step, rows)
        self._clock.leave()
        return step

    def _whole_shard(
        self, slots: NDArray[np.intp], rows: NDArray[np.int64]
    ) -> slice | None:
        """The part of the block these slots are, if one view can show it."""
        first, last = int(slots[0]), int(slots[-1]) + 1
        contiguous = last - first == len(slots) and bool((rows == rows[0]).all())
        if contiguous and range(first, last) in self._executor.shards:
            return slice(first, last)
        return None

    def _open_letters(self, letters: Any, slots: NDArray[np.intp]) -> None:
        """Sort what came by mail; a fault of the slots being taken is raised here."""
        self._inbox.add(letters)
        faults = [self._with_actions(fault) for fault in self._inbox.faults(slots)]
        if faults:
            # They want a reset before their next step.
            failed = np.array([fault.slot for fault in faults])
            self._ledger.start(failed, started=False)
            raise one_error_for(faults)

    def _announce(self, columns: list[Column]) -> None:
        if columns:
            self._tell_all(commands.Columns(columns))

    def _with_actions(self, fault: Fault) -> Fault:
        assert fault.slot is not None
        if fault.command == "reset":  # an episode that has not begun has no actions
            return fault
        (ticket,) = self._ledger.tickets(np.array([fault.slot])).tolist()
        return replace(fault, last_actions=self._actions.last(fault.slot, ticket))

    def observe(self) -> Any:
        """The latest observation of every slot, copied."""
        self._check()
        slots = self._ledger.all
        rows = self._ledger.tickets(slots) & 1
        return self._inbox.assemble([a[rows, slots] for a in self._views.obs], slots)

    # Both at once ---------------------------------------------------------------------

    def reset(self, slots: Slots | None = None, **episodes: Any) -> Step:
        """send_reset and recv."""
        self.send_reset(slots, **episodes)
        return self.recv()

    def step(self, actions: Any, slots: Slots | None = None) -> Step:
        """Send and recv."""
        self.send(actions, slots)
        return self.recv()

    # Questions ------------------------------------------------------------------------

    def call(
        self, name: str, *args: Any, slots: Slots | None = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Call a method, or read an attribute, of the envs in these slots, or all."""
        return self._ask("call", slots, lambda _: (name, args, kwargs))

    def get_attr(self, name: str, slots: Slots | None = None) -> tuple[Any, ...]:
        """Read an attribute, wherever in the wrappers it is."""
        return self._ask("get_attr", slots, lambda _: name)

    def set_attr(self, name: str, values: Any, slots: Slots | None = None) -> None:
        """Set an attribute where the wrappers have it; a list or tuple is per slot."""
        chosen = self._ledger.choose(slots)
        if not isinstance(values, (list, tuple)):
            values = [values] * len(chosen)
        if len(values) != len(chosen):
            raise OptionError(
                "Values must be a list or tuple with length equal to the number of "
                f"environments. Got `{len(values)}` values for {len(chosen)} "
                "environments."
            )
        at = dict(zip(chosen.tolist(), values, strict=True))
        self._ask(
            "set_attr", chosen, lambda slots: (name, [at[slot] for slot in slots])
        )

    def render(self, slots: Slots | None = None) -> tuple[Any, ...]:
        """Render these slots, or all."""
        return self.call("render", slots=slots)

    def apply(
        self,
        function: Callable[..., Any],
        *args: Any,
        slots: Slots | None = None,
    ) -> tuple[Any, ...]:
        """`function(env, *args)` beside each env of these slots, or all."""
        return self._ask("apply", slots, lambda _: (function, args))

    def _ask(
        self, verb: str, slots: Slots | None, payload: Callable[[list[int]], Any]
    ) -> tuple[Any, ...]:
        return self.collect(self.pose(verb, slots, payload))

    def pose(
        self, verb: str, slots: Slots | None, payload: Callable[[list[int]], Any]
    ) -> Question:
        """Ask one question per worker that has any of the slots, and go on."""
        self._check()
        chosen = self._ledger.choose(slots).tolist()
        question = Question.about(chosen, self._executor.shards)
        self.asked += 1
        with self._burying():
            self._executor.ask(question.asks(verb, payload))
        return question

    def collect(
        self, question: Question, timeout: float | None = None
    ) -> tuple[Any, ...]:
        """Wait for the answers to a question, in the order of its slots."""
        self._check()
        with self._burying():
            replies = self._executor.answers(question.by_worker, timeout)
        return question.answers(replies)

    # Checks ---------------------------------------------------------------------------

    def _check(self) -> None:
        if self._state != "open":
            raise _unusable(self._state)
        if threading.get_ident() != self._owner:
            raise OwnershipError(
                "this pool belongs to the thread that made it; make one pool per "
                "thread, or hand the calls to its thread"
            )

    def _check_sendable(self, slots: NDArray[np.intp]) -> None:
        self._ledger.check_idle(slots)
        if self._face.wants_reset:
            self._ledger.check_started(slots)
        self._recall(slots)

    def _recall(self, slots: NDArray[np.intp]) -> None:
        if self._loans.out:
            self._loans.recall(slots, self._ledger.tickets(slots) + 1 & 1)

    def _place_of(self, slot: int) -> tuple[int, int]:
        return place_of(slot, self._executor.shards)

    # Ending ---------------------------------------------------------------------------

    def _tell(self, worker: int, message: Any) -> None:
        try:
            self._executor.tell(worker, message)
        except WorkerDied as error:
            self._bury(error)

    def _tell_each(self, messages: list[tuple[int, Any]]) -> None:
        with self._burying():
            self._executor.tell_each(messages)

    def _tell_all(self, message: Any) -> None:
        for worker in range(len(self._executor.shards)):
            self._tell(worker, message)

    def _bury(self, error: WorkerDied) -> NoReturn:
        """A worker is gone: say what it was doing, and serve no more."""
        self._state = "broken"
        assert error.fault.worker is not None
        shard = self._executor.shards[error.fault.worker]
        # A shard is walked in order: it died on the first slot that is not done.
        slot = self._ledger.unfinished(shard, self._executor.done)
        if slot is None:
            raise error
        raise error_for(self._last_words(error.fault, slot)) from None

    def _last_words(self, fault: Fault, slot: int) -> Fault:
        """What the block still says about a slot whose worker is gone."""
        (ticket,) = self._ledger.tickets(np.array([slot])).tolist()
        seed = int(self._views.record["seed"][1 - (ticket & 1), slot])
        return self._with_actions(
            replace(fault, slot=slot, seed=None if seed < 0 else seed)
        )

    @contextmanager
    def _burying(self) -> Iterator[None]:
        try:
            yield
        except WorkerDied as error:
            self._bury(error)

    # Looking --------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Who was busy and what took how long, since the pool was opened."""
        self._check()
        clock, times = self._clock, self._executor.times
        seconds = perf_counter() - clock.began
        return Stats(
            seconds=seconds,
            policy=clock.policy,
            waiting=clock.waiting,
            copying=clock.copying,
            step=_times(times, "step"),
            reset=_times(times, "reset"),
            workers=tuple(self._worker_stats(seconds)),
        )

    def _worker_stats(self, seconds: float) -> Iterator[WorkerStats]:
        pairs = zip(self._executor.shards, self._executor.vitals(), strict=True)
        for worker, (shard, vitals) in enumerate(pairs):
            busy = vitals.busy_seconds
            if busy is None:  # the caller, who runs the envs while it waits for them
                busy = self._clock.waiting
            yield WorkerStats(
                worker=worker,
                slots=shard,
                pid=vitals.pid,
                busy_seconds=busy,
                busy=min(1.0, busy / seconds),
                memory=memory_of(vitals.pid),
            )

    @property
    def shards(self) -> tuple[range, ...]:
        """The slots that each worker runs."""
        return tuple(self._executor.shards)

    @property
    def waiting(self) -> int:
        """How many slots have a command under way."""
        return self._ledger.waiting

    @property
    def envs(self) -> list[Any]:
        """The environments themselves, where they are in this process (serial)."""
        envs: list[Any] | None = getattr(self._executor, "envs", None)
        if envs is None:
            raise OptionError(
                f"the environments are in {self.layout.workers} {self.layout.backend} "
                'workers; use call and get_attr, or backend="serial"'
            )
        return envs

    @property
    def closed(self) -> bool:
        """Whether the pool has been closed."""
        return self._state == "closed"

    def close(self, timeout: float | None = None) -> None:
        """Close every env and end every worker; bounded, idempotent, never raises."""
        if self._state in ("closed", "unbuilt", "forked"):
            return
        self._state = "closed"
        self._executor.close(self._close_timeout if timeout is None else timeout)
        _open_pools.discard(self)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a pool owns workers and memory, so it can be neither copied nor pickled; "
            "make another one from the same arguments"
        )

    def __del__(self) -> None:
        if getattr(self, "_state", "closed") not in ("closed", "unbuilt", "forked"):
            self.close(2.0)


def _times(times: NDArray[np.void], kind: str) -> Times:
    return Times(times[kind].astype(np.int64), times[f"{kind}_seconds"].copy())


def _unusable(state: str) -> CorralError:
    if state == "forked":
        return OwnershipError(
            "this pool belongs to the parent of this forked process; make one here"
        )
    if state == "sending":
        return ClosedError("a send was interrupted; close this pool and make a new one")
    if state == "broken":
        return ClosedError("a worker of this pool died; close it and make a new one")
    return ClosedError("this pool is closed")


_open_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _disown_in_child() -> None:
    for pool in list(_open_pools):
        pool._state = "forked"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_in_child)
