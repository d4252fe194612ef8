"""A worker: a shard of envs, the resources beside them, and the commands it obeys.

The same object under every executor: `serial` calls `handle`, `thread` and `process`
run `serve`, the loop of a worker: wait for the bell, obey, ring.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from corral.core import EnvSpec
from corral.engine.layout import plan
from corral.engine.layout.codec import Codecs
from corral.engine.transport.segment import SegmentAddress, open_segment
from corral.engine.worker import commands
from corral.engine.worker.batched_shard import BatchedShard
from corral.engine.worker.commands import (
    INDEX_BITS,
    INDEX_MASK,
    MODE_MASK,
    VERB_SHIFT,
    Ask,
    Job,
    MapCall,
    MapItem,
    Verb,
)
from corral.engine.worker.context import WorkerContext, here
from corral.engine.worker.forked_copies import Guard, guarded, no_guard
from corral.engine.worker.letters import Reply, WorkerEndpoint, describe
from corral.engine.worker.profilers import stop_profilers
from corral.engine.worker.seeds import (
    SeedDomain,
    episode_seed,
    seed_globals,
    worker_globals_seed,
)
from corral.engine.worker.serialization import opened
from corral.engine.worker.shard import Shard
from corral.errors import Fault, OptionError

# Called past the shard, these would break the order of its episodes.
RESERVED_METHODS = ("reset", "step", "close")
# Seconds between looks at the stop word; the lifeline wakes us anyway.
STOP_CHECK_SECONDS = 0.25
# Plain integers: comparing with those of an enum takes three times as long.
STEP, STEP_ALL, RESET, MAIL = map(int, Verb)


class Worker:
    """One worker, from its first resource to its last env closed.

    Attributes:
        has_built: Whether any worker of this process has built envs, or has begun to.
    """

    has_built: ClassVar[bool] = False

    def __init__(self, job: Job, lock: Any = None, guard: Guard = no_guard) -> None:
        self.job = job
        self.guard = guard
        self.context = WorkerContext(
            index=job.worker,
            slots=job.slots,
            device=job.device,
            shared=job.shared,
            rng=worker_rng(job.options.root_seed, _places(job)),
        )
        kind = BatchedShard if job.options.batched else Shard
        self.shard = kind(job, lock, guard)
        self.closing = False
        # What sites here step the shard with; see `engine.pool.local`.
        self.local: Any = None
        self._items = MapItems(self.context)
        # Until there is a block:
        self._vitals: Any = [0.0] * (plan.CACHE_LINE_BYTES // 8)

    def prepare(self) -> None:
        """Make what envs find in their worker."""
        here.context, job = self.context, self.job
        if job.owns_process:
            seed_globals(self._globals_seed(job.options.root_seed))
            torch = sys.modules.get("torch")
            if job.threads is not None and torch is not None:
                torch.set_num_threads(job.threads)
        if job.worker_init is not None:
            self._made_by("worker_init", job.worker_init)
        if job.per_worker is not None:
            self.context.resource = self._made_by("per_worker", job.per_worker)

    def _made_by(self, name: str, function: Any) -> Any:
        """What a function of the user makes; an error knows which one it came from."""
        try:
            made = opened(function)()
        except BaseException as error:
            with suppress(Exception):  # some exceptions take no attributes
                error.raised_by = name  # type: ignore[attr-defined]
            raise
        self.guard()
        return made

    def build(self, first: Any = None, tried: Worker | None = None) -> list[EnvSpec]:
        """Resources first, then the envs that use them.

        Args:
            first: the env of the first slot, where it was made before.
            tried: a worker that has tried envs in this process, and has resources.
        """
        if tried is None:
            self.prepare()
        else:
            here.context, made = self.context, tried.context
            self.context.resource, self.context.rng = made.resource, made.rng
        factories = list(opened(self.job.factories) or [])
        Worker.has_built |= bool(factories)
        if first is not None:
            kept, make = [first], factories[0]
            factories[0] = lambda: kept.pop() if kept else make()
        specs = self.shard.build(factories)
        if self.job.owns_process:
            stop_profilers()
        return specs

    def _globals_seed(self, root: int) -> int:
        return worker_globals_seed(root, _places(self.job).start, self.job.generation)

    def bind(
        self,
        views: plan.DataViews,
        codecs: Codecs,
        endpoint: WorkerEndpoint,
        resume: commands.ResumeState | None = None,
    ) -> None:
        """Take this worker's part of the block and its end of the mailbox."""
        self.shard.bind(views, codecs, endpoint, resume)
        self.endpoint, self.views, self.codecs = endpoint, views, codecs
        slots = self.job.slots
        self._reset_seeds = endpoint.control.reset_seed[slots.start : slots.stop].data
        self._vitals = endpoint.control.vitals[endpoint.index].data

    def serve(self) -> bool:
        """Obey until the pool closes; returns False if the parent went away instead.

        while not closing:
            bell.wait -> queue entry -> handle -> (per slot: done, ring) -> flush
        """
        endpoint, vitals = self.endpoint, self._vitals
        queue = endpoint.control.queue[endpoint.index].data
        consumed = endpoint.control.consumed[endpoint.index].data
        stop = endpoint.control.stop[endpoint.index].data
        bell, parent_bell = endpoint.bell, endpoint.parent_bell
        assert bell is not None and parent_bell is not None
        capacity = len(queue)
        seen = 0
        while not self.closing:
            if not bell.wait(seen + 1, STOP_CHECK_SECONDS, endpoint.spin):
                if stop[0]:
                    return False
                continue
            vitals[plan.BUSY_SINCE] = began = time.perf_counter()
            vitals[plan.CURRENT_COMMAND] = plan.STEPPING
            count = bell.count
            while seen != count:
                entry = queue[seen % capacity]
                seen = seen + 1 & plan.WORD_MASK
                self.handle(entry)
                self.guard()
                consumed[0] = seen
            parent_bell.flush()
            vitals[plan.BUSY_SECONDS] += time.perf_counter() - began
            vitals[plan.BUSY_SINCE] = 0.0
        return True

    def handle(self, entry: int) -> None:
        """Obey one queue entry."""
        verb, index = entry >> VERB_SHIFT, entry & INDEX_MASK
        mode = entry >> INDEX_BITS & MODE_MASK
        if verb == STEP_ALL:
            self.shard.step_all(mode)
        elif verb == STEP:
            self.shard.step(index, mode)
        elif verb == RESET:
            seed = self._reset_seeds[index]
            self.shard.reset(index, seed if seed >= 0 else None, mode)
        else:
            assert verb == MAIL, f"no such command: {entry:#x}"
            # Without a deadline: it may import modules.
            self._vitals[plan.CURRENT_COMMAND] = plan.READING
            message = self.endpoint.fetch()
            if type(message) is Ask:  # nothing else takes time, or has no deadline
                self.mark(plan.ANSWERING)
            self.read(message)
            self.mark(plan.STEPPING)

    def mark(self, command: int) -> None:
        """Let the parent see what this worker does, from now on."""
        self._vitals[plan.BUSY_SINCE] = time.perf_counter()
        self._vitals[plan.CURRENT_COMMAND] = command

    @property
    def constructs(self) -> bool:
        """Whether it was marked last with CONSTRUCTING."""
        return bool(self._vitals[plan.CURRENT_COMMAND] == plan.CONSTRUCTING)

    # Messages -------------------------------------------------------------------------

    def read(self, message: Any) -> None:
        """Obey one message."""
        shard = self.shard
        match message:
            case commands.MailedAction(index, values):
                shard.mailed_actions[index] = values
            case commands.RawAction(index, value):
                shard.raw_actions[index] = value
            case commands.NextEpisode(index, options, task, seed):
                shard.plan.request(index, seed, options, task)
            case commands.NewColumns(columns):
                shard.columns.adopt(columns)
            case commands.NewRootSeed(seed):
                shard.plan.restart_count(seed)
                if self.job.owns_process:
                    shard.envs.leave_slots()  # their streams are seeded with episodes
                    seed_globals(self._globals_seed(seed))
            case commands.NewSampleTask(sample_task):
                shard.plan.options.sample_task = sample_task
            case Ask():
                reply = self.answer(message)
                reply.number = message.number
                # Before the caller has the reply, and may want a step in time.
                self.mark(plan.STEPPING)
                self.endpoint.send(reply)
                if message.verb in ("run", "site") and self.endpoint.ring is not None:
                    self.endpoint.ring(reply.rings)  # announced like slots
                if message.verb == "site" and self.shard.outgrown:
                    self.shard.retire(plan.AFTER_SITE_CALL)
            case _:
                raise AssertionError(f"no such message: {message!r:.80}")

    def answer(self, message: Ask) -> Reply:
        """Answer a question, slot by slot."""
        self._vitals[plan.QUESTION_NUMBER] = message.number
        verb, payload = message.verb, message.payload
        if verb == "close":
            self.closing = True
            return Reply([], self.shard.close())
        if verb == "run":
            return self._attempt("map", [None], lambda _: self._items.run(payload))
        if verb == "site":  # a `SiteCall`, which belongs to the pool's room
            self._vitals[plan.SITE_CALLED] = 1.0
            reply: Reply = payload(self)
            return reply
        if verb == "call" and payload[0] == "render":
            verb = "render"
        return self._attempt(
            verb, message.indexes, lambda index: self._value(index, message)
        )

    def _attempt(
        self, command: str, indexes: Sequence[Any], work: Callable[[Any], Any]
    ) -> Reply:
        values: list[Any] = []
        faults: list[Fault] = []
        slots = [self.job.slots[index] for index in indexes if index is not None]
        for index, slot in itertools.zip_longest(indexes, slots, fillvalue=-1):
            if index is not None:
                self._vitals[plan.CURRENT_SLOT] = index
            try:
                with guarded(self.guard), self.shard.envs.randomness_of(slot):
                    values.append(work(index))
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and self.endpoint.ring is None:
                    raise  # the user's Ctrl-C under serial
                faults.append(self.described(index, command, error))
        self._vitals[plan.CURRENT_SLOT] = plan.NO_SLOT
        return Reply(values, faults, tuple(slots))

    def described(self, index: int | None, command: str, error: BaseException) -> Fault:
        """An exception as a fault, of a slot's env or of none."""
        if index is None:
            return describe(error, command, None, self.job.worker)
        return self.shard.described(index, command, error)

    def _value(self, index: int, message: Ask) -> Any:
        """What one slot's env answers."""
        adapter = self.shard.envs.adapters[index]
        match message.verb, message.payload:
            case "apply", (function, args):
                return function(adapter.env, *args)
            case "get_attr", name:
                return adapter.get_attr(name)
            case "set_attr", (name, values):
                return adapter.set_attr(name, values[message.indexes.index(index)])
            case "call", (name, _, _) if name in RESERVED_METHODS:
                raise OptionError(
                    f"Trying to call function `{name}` with `call`, "
                    f"use `{name}` directly instead."
                )
            case "call", (name, args, kwargs):
                return adapter.call(name, args, kwargs)
        raise AssertionError(f"no such question: {message.verb}")


def _places(job: commands.Job) -> range:
    """The numbers of the worker's slots in seeds."""
    first = job.options.first_slot
    return range(first + job.slots.start, first + job.slots.stop)


def worker_rng(root: int, slots: range) -> np.random.Generator:
    """What `corral.this_worker().rng` draws from, in the worker of these slots."""
    return np.random.default_rng(episode_seed(root, slots.start, SeedDomain.WORKERS))


# Items of `map` -----------------------------------------------------------------------


class MapItems:
    """Runs the items of one worker, `map` after `map`."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._first = context.shared
        self._call: MapCall | None = None
        self._ready = False
        self._function: Any = None
        self._segments: dict[SegmentAddress, Mapping[str, NDArray[Any]]] = {}

    def run(self, asked: MapItem) -> Any:
        """Call the function with an item."""
        if asked.call is not None:
            self._call, self._ready = asked.call, False
        if not self._ready:
            # Here, so that what cannot be opened is the fault of every item, and no
            # item is run by the function before.
            assert self._call is not None
            self._begin(self._call)
            self._ready = True
        return self._function(opened(asked.item))

    def _begin(self, call: MapCall) -> None:
        """Open what a call has brought."""
        self._segments = {
            address: self._segments.get(address) or _read_only(open_segment(address))
            for address in call.segments
        }
        arrays = dict(self._first)
        for more in (*self._segments.values(), call.arrays):
            arrays |= more
        self._context.shared, self._context.version = arrays, call.version
        self._function = opened(call.function)


def _read_only(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    for array in arrays.values():
        array.flags.writeable = False
    return arrays
