"""A worker: a shard of envs, the resources beside them, and the commands it obeys.

The same object under every executor: `serial` calls it directly, `thread` and `process`
run `serve` around it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from corral.core import EnvSpec
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import (
    ANSWERING,
    BUSY_SINCE,
    CACHE_LINE_BYTES,
    CURRENT_COMMAND,
    CURRENT_SLOT,
    NO_SLOT,
    STEPPING,
    DataViews,
)
from corral.engine.worker import commands
from corral.engine.worker.batched_shard import BatchedShard
from corral.engine.worker.commands import (
    INDEX_BITS,
    INDEX_MASK,
    Ask,
    Job,
    ResumeState,
    Verb,
)
from corral.engine.worker.context import WorkerContext, here
from corral.engine.worker.forked_copies import Guard, no_guard
from corral.engine.worker.letters import Reply, describe
from corral.engine.worker.profilers import stop_profilers
from corral.engine.worker.seeds import SeedDomain, episode_seed, seed_globals
from corral.engine.worker.serialization import opened
from corral.engine.worker.shard import Shard
from corral.engine.worker.shard_outputs import ShardOutputs
from corral.errors import Fault, OptionError

RESERVED_METHODS = ("reset", "step", "close")
"""Called past the shard, these would break the order of its episodes."""


class Worker:
    """One worker, from its first resource to its last env closed."""

    def __init__(self, job: Job, lock: Any = None, guard: Guard = no_guard) -> None:
        self.job = job
        self.guard = guard
        self.context = WorkerContext(
            index=job.worker,
            slots=job.slots,
            device=job.device,
            shared=job.shared,
            rng=worker_rng(job.options.root_seed, job.slots),
        )
        kind = BatchedShard if job.options.batched else Shard
        self.shard = kind(
            job.worker, job.slots, job.options, lock, guard, job.owns_process
        )
        self.closing = False
        self._prepared = False
        self._vitals: Any = [0.0] * (CACHE_LINE_BYTES // 8)  # until there is a block

    def prepare(self) -> None:
        """What envs find in their worker."""
        here.context = self.context
        job = self.job
        if job.owns_process:
            seed_globals(self._globals_seed(job.options.root_seed))
            _limit_torch_threads(job.threads)
        worker_init = opened(job.worker_init)
        if worker_init is not None:
            worker_init()
            self.guard()
        per_worker = opened(job.per_worker)
        if per_worker is not None:
            self.context.resource = per_worker()
            self.guard()
        self._function = opened(job.function)
        self._prepared = True

    def take_over(self, tried: Worker) -> None:
        """Go on with the resources of a worker that has tried envs in this process."""
        self.context.resource = tried.context.resource
        self.context.rng = tried.context.rng
        self._function = opened(self.job.function)
        here.context = self.context
        self._prepared = True

    def build(self, first: Any = None) -> list[EnvSpec]:
        """Resources first, then the envs that use them.

        Args:
            first: the env of the first slot, where it was made before.
        """
        if not self._prepared:
            self.prepare()
        factories = list(opened(self.job.factories) or [])
        if first is not None:
            again = factories[0]
            factories[0] = lambda: first
        specs = self.shard.build(factories)
        if first is not None:
            factories[0] = again  # for the next time
        if self.job.owns_process:
            stop_profilers()
        return specs

    def _globals_seed(self, root: int) -> int:
        """One that takes another's place must not draw the same numbers again."""
        job = self.job
        if job.generation:
            domain = SeedDomain.WORKERS
            return episode_seed(root, job.slots.start, domain, job.generation)
        return episode_seed(root, job.slots.start)

    def bind(
        self,
        views: DataViews,
        codecs: Codecs,
        outputs: ShardOutputs,
        reset_seed: np.ndarray[Any, np.dtype[np.int64]],
        fetch: Callable[[], Any],
        answer: Callable[[Reply], None],
        resume: ResumeState | None = None,
    ) -> None:
        """Take this worker's part of the block and its end of the mailbox."""
        self.shard.bind(views, codecs, outputs, resume)
        self._vitals = outputs.vitals.data
        self._ring = outputs.ring
        self._reset_seed = reset_seed
        self._fetch = fetch
        self._answer = answer

    def handle(self, entry: int) -> None:
        """Obey one queue entry."""
        self._HANDLERS[entry >> 28](self, entry >> INDEX_BITS & 15, entry & INDEX_MASK)

    def _unknown(self, mode: int, index: int) -> None:
        raise AssertionError(f"no such command: mode {mode}, index {index}")

    def _step(self, mode: int, index: int) -> None:
        self.shard.step(index, mode)

    def _step_all(self, mode: int, _: int) -> None:
        self.shard.step_all(mode)

    def _reset(self, mode: int, index: int) -> None:
        seed = int(self._reset_seed[self.job.slots.start + index])
        self.shard.reset(index, seed if seed >= 0 else None, mode)

    def _mail(self, _mode: int, _index: int) -> None:
        message = self._fetch()
        if type(message) is Ask:  # nothing else takes time, or has no deadline
            self._mark(ANSWERING)
        self.read(message)
        self._mark(STEPPING)

    def _mark(self, command: int) -> None:
        """Let the parent see what this worker does, from now on."""
        self._vitals[BUSY_SINCE] = time.perf_counter()
        self._vitals[CURRENT_COMMAND] = command

    # By verb; a tuple, since a dict of enums takes three times as long to look up.
    _HANDLERS: ClassVar[tuple[Callable[[Worker, int, int], None], ...]] = (
        _unknown,
        _step,
        _step_all,
        _reset,
        _mail,
    )
    assert [Verb.STEP, Verb.STEP_ALL, Verb.RESET, Verb.MAIL] == [1, 2, 3, 4]

    # Messages -------------------------------------------------------------------------

    def read(self, message: Any) -> None:
        """Obey one message."""
        self._READERS[type(message)](self, message)

    def _reroot(self, message: commands.NewRootSeed) -> None:
        self.shard.plan.restart_count(message.seed)
        if self.job.owns_process:
            self.shard.envs.leave_slots()  # their streams are seeded with episodes
            seed_globals(self._globals_seed(message.seed))

    def _ask(self, message: Ask) -> None:
        reply = self.answer(message)
        self._mark(STEPPING)  # before the caller has it, and may want a step in time
        self._answer(reply)
        if message.verb == "run" and self._ring is not None:
            self._ring()  # an item that is done is announced like a slot

    _READERS: ClassVar[dict[type, Callable[[Worker, Any], None]]] = {
        commands.NewColumns: lambda self, new: self.shard.columns.adopt(new.columns),
        commands.NextEpisode: lambda self, wanted: self.shard.plan.request(
            wanted.index, wanted.seed, wanted.options, wanted.task
        ),
        commands.MailedAction: lambda self, action: self.shard.mailed_actions.update(
            {action.index: action.values}
        ),
        commands.RawAction: lambda self, action: self.shard.raw_actions.update(
            {action.index: action.value}
        ),
        commands.NewRootSeed: _reroot,
        Ask: _ask,
    }

    def answer(self, message: Ask) -> Reply:
        """Answer a question, slot by slot."""
        if message.verb == "close":
            self.closing = True
            return Reply([], self.shard.close())
        if message.verb == "run":
            return self._attempt(
                "map", [None], lambda _: self._function(opened(message.payload))
            )
        work = self._ANSWERS[message.verb]
        return self._attempt(
            command_of(message.verb, message.payload),
            message.indexes,
            lambda index: work(self, index, message),
        )

    def _attempt(
        self, command: str, indexes: Sequence[Any], work: Callable[[Any], Any]
    ) -> Reply:
        values: list[Any] = []
        faults: list[Fault] = []
        slots: list[int] = []
        for index in indexes:
            slot = None if index is None else self.job.slots[index]
            if slot is not None:
                self._vitals[CURRENT_SLOT] = index
                slots.append(slot)
            try:
                with self.shard.envs.randomness_of(-1 if slot is None else slot):
                    values.append(work(index))
                self.guard()
            except BaseException as error:
                self.guard(error)
                if isinstance(error, KeyboardInterrupt) and self._ring is None:
                    raise  # the user's Ctrl-C under serial
                faults.append(self.described(index, command, error))
        self._vitals[CURRENT_SLOT] = NO_SLOT
        return Reply(values, faults, tuple(slots))

    def described(self, index: int | None, command: str, error: BaseException) -> Fault:
        """An exception as a fault, of a slot's env or of none."""
        if index is None:
            return describe(error, command, None, self.job.worker)
        return self.shard.described(index, command, error)

    def _call(self, index: int, message: Ask) -> Any:
        name, args, kwargs = message.payload
        if name in RESERVED_METHODS:
            raise OptionError(
                f"Trying to call function `{name}` with `call`, "
                f"use `{name}` directly instead."
            )
        return self.shard.envs.adapters[index].call(name, args, kwargs)

    def _set_attr(self, index: int, message: Ask) -> None:
        name, values = message.payload
        position = message.indexes.index(index)
        self.shard.envs.adapters[index].set_attr(name, values[position])

    def _apply(self, index: int, message: Ask) -> Any:
        function, args = message.payload
        return function(self.shard.envs.adapters[index].env, *args)

    _ANSWERS: ClassVar[dict[str, Callable[[Worker, int, Ask], Any]]] = {
        "apply": _apply,
        "call": _call,
        "get_attr": lambda self, index, message: self.shard.envs.adapters[
            index
        ].get_attr(message.payload),
        "set_attr": _set_attr,
    }


def worker_rng(root: int, slots: range) -> np.random.Generator:
    """What `corral.this_worker().rng` draws from, in the worker of these slots."""
    seed = episode_seed(root, slots.start, SeedDomain.WORKERS)
    return np.random.default_rng(seed)


def command_of(verb: str, payload: Any) -> str:
    """How a fault names a question."""
    return "render" if verb == "call" and payload[0] == "render" else verb


def _limit_torch_threads(threads: int | None) -> None:
    torch = sys.modules.get("torch")
    if threads is not None and torch is not None:
        torch.set_num_threads(threads)
