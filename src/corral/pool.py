"""A pool sends actions to slots and receives what came back: the core under every face.

    with corral.Pool(make_env, num_envs=32, seed=0) as pool:
        pool.send_reset()
        step = pool.recv(min_slots=16)            # first ready, slots ascending
        pool.send(actions, slots=step.slots)

A slot has at most one command under way. A pool belongs to the thread and process that
made it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from corral.adapters.factories import Wrap, factories_for
from corral.core import NO_TASK, Autoreset, EnvSpec, Factory, Step
from corral.errors import (
    ClosedError,
    CorralError,
    Fault,
    OptionError,
    OrderError,
    OwnershipError,
    SpacesDiffer,
    StaleViewError,
    WorkerDied,
)
from corral.executors import place, usable_cores
from corral.executors.contract import Assignment
from corral.layout.columns import Columns
from corral.layout.infos import Infos
from corral.layout.plan import ACTION_ROWS, DataViews
from corral.supervision.report import error_for
from corral.workers import commands
from corral.workers.autoreset import MODES
from corral.workers.commands import WIDE, Ask, Verb
from corral.workers.letters import Letter, Reply
from corral.workers.shard import TICKET_MASK, Codecs, ShardOptions

_NO_INFOS = Infos([], {})
_SCALARS = (
    "reward",
    "terminated",
    "truncated",
    "started",
    "valid",
    "episode_return",
    "episode_length",
    "seed",
)
"""The fields of a record that a Step shows, in its order."""
Slots = Sequence[int] | NDArray[np.integer]


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
        start_timeout: seconds for a worker process to build its envs.
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
        self._state = "unbuilt"
        self._face = _face or FaceOptions()
        self._mode = _mode(autoreset)
        self.autoreset = autoreset
        self.seed = _root_seed(seed)
        self.copy = copy
        self.debug = debug
        self._close_timeout = close_timeout
        assignment = Assignment(
            factories=factories_for(env, num_envs, env_kwargs, wrappers),
            shards=[],
            options=ShardOptions(
                root_seed=self.seed,
                seeded=not self._face.bare_resets,
                infos=_info_choice(infos),
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
            self._codecs = Codecs.of(self.spec)
            self._views = self._executor.bind(self._codecs)
        except BaseException:
            self._executor.close(2.0)
            self._state = "closed"
            raise
        count = self.num_envs
        self._columns = Columns(self._views.arena, self._views.presence)
        self._all = np.arange(count)
        self._action_dtypes = [leaf.dtype for leaf in self._codecs.action.leaves]
        self._mailed = self._codecs.obs.mailed
        self._wide_used = False
        self._rows = [_Row(self._codecs, self._views, row, self._all) for row in (0, 1)]
        # As in the shard: the ticket of slot i is base + offsets[i].
        self._base = 0
        self._offsets = np.zeros(count, np.int64)
        self._even = True
        self._pending = np.zeros(count, np.bool_)
        self._whole = False
        """Whether all slots are pending and `_pending` has not been told."""
        self.waiting = 0
        """How many slots have a command under way; all of them when it is num_envs."""
        self._taken = 0
        """Results received since the start, modulo 2**32."""
        self._unstarted = count
        """How many slots have never been reset."""
        self._started = np.zeros(count, np.bool_)
        self._letters: dict[int, Letter] = {}
        self._mailed_obs: dict[int, list[Any]] = {}
        self._mailed_final: dict[int, list[Any]] = {}
        self._loans: list[_Loan] = []
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
        chosen = self._choose(slots)
        self._check_idle(chosen)
        per_slot = _Episodes(len(chosen), seeds, options, tasks)
        if self._loans:
            self._recall(chosen)
        if seed is not None:
            self._new_root(seed)
        for position, slot in enumerate(chosen.tolist()):
            number, message = per_slot.at(position)
            self._executor.reset_seed[slot] = number
            if message:
                worker, index = self._place_of(slot)
                self._tell(worker, commands.Episode(index, **message))
        self._advance(chosen)
        self._started[chosen] = True
        self._unstarted = self.num_envs - int(np.count_nonzero(self._started))
        self._executor.send(chosen, Verb.RESET, 0)

    def send(
        self,
        actions: Any,
        slots: Slots | None = None,
        *,
        autoreset: Autoreset | None = None,
    ) -> None:
        """Step these slots, or all; `actions` in the order of `slots`."""
        self._check()
        mode = self._mode if autoreset is None else _mode(autoreset)
        if slots is not None:
            self._send_some(actions, self._choose(slots), mode)
            return
        if self.waiting:
            self._check_idle(self._all)
        if self._unstarted and self._face.wants_reset:
            self._check_started(self._all)
        if self._loans:
            self._recall(self._all)
        leaves, mailed = self._codecs.action.split(actions, self.num_envs)
        if mailed:
            self._mail_actions(self._all, mailed)
        arrays, wide = self._fields_for(leaves)
        even = self._even or self._settle()
        self._base += 1
        if even:
            row = self._base % ACTION_ROWS
            for array, leaf in zip(arrays, leaves):  # noqa: B905 - hot
                array[row] = leaf
        else:
            self._write_actions(self._all, leaves, arrays)
        self.waiting = self.num_envs
        self._whole = True
        self._executor.send_all(mode | wide)

    def _send_some(self, actions: Any, slots: NDArray[np.intp], mode: int) -> None:
        self._check_idle(slots)
        if self._face.wants_reset:
            self._check_started(slots)
        if self._loans:
            self._recall(slots)
        leaves, mailed = self._codecs.action.split(actions, len(slots))
        if mailed:
            self._mail_actions(slots, mailed)
        arrays, wide = self._fields_for(leaves)
        self._advance(slots)
        self._write_actions(slots, leaves, arrays)
        self._executor.send(slots, Verb.STEP, mode | wide)

    def send_raw(self, actions: Sequence[Any]) -> None:
        """Step all slots with actions that go to the envs exactly as they are given."""
        self._check()
        self._check_idle(self._all)
        if self._loans:
            self._recall(self._all)
        for slot, action in enumerate(actions):
            worker, index = self._place_of(slot)
            self._tell(worker, commands.RawAction(index, action))
        self._advance(self._all)
        self._executor.send(self._all, Verb.STEP, self._mode)

    def _fields_for(self, leaves: list[Any]) -> tuple[list[NDArray[Any]], int]:
        """Where these actions go without loss: the space's dtypes, or wide ones."""
        for dtype, leaf in zip(self._action_dtypes, leaves):  # noqa: B905 - hot
            if leaf.dtype is not dtype and not np.can_cast(leaf.dtype, dtype, "safe"):
                self._wide_used = True
                return self._views.wide_action, WIDE
        return self._views.action, 0

    def _write_actions(
        self, slots: NDArray[np.intp], leaves: list[Any], arrays: list[NDArray[Any]]
    ) -> None:
        rows = (self._base + self._offsets[slots]) % ACTION_ROWS
        for array, leaf in zip(arrays, leaves, strict=True):
            array[rows, slots] = leaf

    def _mail_actions(self, slots: NDArray[np.intp], mailed: list[Any]) -> None:
        for position, slot in enumerate(slots.tolist()):
            worker, index = self._place_of(slot)
            values = [column[position] for column in mailed]
            self._tell(worker, commands.Action(index, values))

    def _advance(self, slots: NDArray[np.intp]) -> None:
        self._offsets[slots] += 1
        self._even = False
        self._pending[slots] = True
        self.waiting += len(slots)

    def _spread(self) -> None:
        """Mark each slot of a batch that was sent as a whole."""
        if self._whole:
            self._pending[:] = True
            self._whole = False

    def _settle(self) -> bool:
        """Whether all slots have the same ticket; if so the base takes it."""
        if (self._offsets == self._offsets[0]).all():
            self._base += int(self._offsets[0])
            self._offsets[:] = 0
            self._even = True
        return self._even

    def assign(self, slot: int, task: Any) -> None:
        """Give a task to the slot's first episode that starts after what was sent."""
        self._check()
        (chosen,) = self._choose([slot]).tolist()
        worker, index = self._place_of(chosen)
        self._tell(worker, commands.Episode(index, task=task))

    def _new_root(self, seed: int) -> None:
        self.seed = _root_seed(seed)
        for worker in range(len(self._executor.shards)):
            self._tell(worker, commands.Root(self.seed))

    # Receiving ------------------------------------------------------------------------

    def recv(
        self,
        min_slots: int | None = None,
        max_slots: int | None = None,
        *,
        timeout: float | None = None,
        copy: bool | None = None,
    ) -> Step:
        """Wait for results and take them, slots ascending.

        Args:
            min_slots: wait for this many; for everything under way if None.
            max_slots: take no more than this; all that is ready if None.
            timeout: seconds, then TimeoutError; the results stay under way.
            copy: False for views, which stay intact until the slot has been sent to
                twice more. Batches of all slots or of one whole shard are views, any
                other is gathered.
        """
        self._check()
        if not self.waiting:
            raise OrderError("recv with nothing sent: send or send_reset first")
        copy = self.copy if copy is None else copy
        if min_slots is None and max_slots is None:
            self._wait(self.waiting, timeout)
            if self.waiting == self.num_envs and (self._even or self._settle()):
                return self._take_all(copy)
            self._spread()
            return self._take(np.flatnonzero(self._pending), copy)
        self._spread()
        low, high = self._bounds(min_slots, max_slots)
        self._wait(low, timeout)
        return self._take(self._ready()[:high], copy)

    def _bounds(self, low: int | None, high: int | None) -> tuple[int, int]:
        high = self.waiting if high is None else high
        low = min(high, self.waiting) if low is None else low
        if not 1 <= low <= high:
            raise OptionError(
                f"recv(min_slots={low}, max_slots={high}): needs 1 <= min <= max"
            )
        if low > self.waiting:
            raise OptionError(
                f"recv(min_slots={low}) would wait for ever: "
                f"{self.waiting} slots have a command under way"
            )
        return low, high

    def _wait(self, count: int, timeout: float | None) -> None:
        try:
            reached = self._executor.wait(self._taken + count & TICKET_MASK, timeout)
        except WorkerDied as error:
            self._bury(error)
        if not reached:
            raise TimeoutError(
                f"{count} results were not there after {timeout} s; "
                f"{self.waiting} slots have a command under way"
            )

    def _ready(self) -> NDArray[np.intp]:
        tickets = (self._base + self._offsets) & TICKET_MASK
        return np.flatnonzero(self._pending & (self._executor.done == tickets))

    def _take_all(self, copy: bool) -> Step:
        """Every slot, all on the same row: what `step` does."""
        row = self._base & 1
        self.waiting = 0
        if not self._whole:
            self._pending[:] = False
        self._whole = False
        self._taken = self._taken + self.num_envs & TICKET_MASK
        letters = self._executor.letters()
        if letters or self._letters:
            self._open_letters(letters, self._all)
        infos = _NO_INFOS
        if self._executor.informed() or self._letters:
            infos = self._infos(self._columns.read(row), self._all)
        step = self._rows[row].step(infos, copy or self.debug)
        if self._letters or self._mailed:
            self._add_mail(step)
        if not copy and self.debug:
            self._lend(step)
        return step

    def _take(self, slots: NDArray[np.intp], copy: bool) -> Step:
        """Some slots, or slots on different rows."""
        self._pending[slots] = False
        self.waiting -= len(slots)
        self._taken = self._taken + len(slots) & TICKET_MASK
        self._open_letters(self._executor.letters(), slots)
        rows = (self._base + self._offsets[slots]) & 1
        infos = self._infos(self._columns.read(rows, slots), slots)
        whole = None if copy else self._whole_shard(slots, rows)
        if whole is not None:
            step = _Row(self._codecs, self._views, int(rows[0]), slots, whole).step(
                infos, False
            )
        else:
            step = _gather(self._codecs, self._views, rows, slots, infos)
        if self._letters or self._mailed:
            self._add_mail(step)
        if whole is not None and self.debug:
            self._lend(step)
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

    def _open_letters(self, letters: Sequence[Letter], slots: NDArray[np.intp]) -> None:
        """Sort what came by mail; a fault of the slots being taken is raised here."""
        for letter in letters:
            self._letters[letter.slot] = letter
        if any(letter.fault is not None for letter in self._letters.values()):
            self._raise_faults(slots)

    def _raise_faults(self, slots: NDArray[np.intp]) -> None:
        """What the same batch brought for other slots is gone with the error."""
        chosen = slots.tolist()
        taken = [self._letters[slot] for slot in chosen if slot in self._letters]
        faults = [
            self._with_actions(one.fault) for one in taken if one.fault is not None
        ]
        if not faults:
            return  # of a slot that is not taken yet
        for letter in taken:
            del self._letters[letter.slot]
            if letter.obs is not None:
                self._mailed_obs[letter.slot] = letter.obs
        raise self._failure(faults)

    def _failure(self, faults: list[Fault]) -> CorralError:
        """One error for all of them; the slots want a reset before the next step."""
        for fault in faults:
            if fault.slot is not None:
                self._started[fault.slot] = False
        self._unstarted = self.num_envs - int(np.count_nonzero(self._started))
        error = error_for(faults[0])
        error.faults = tuple(faults)  # type: ignore[attr-defined]
        return error

    def _with_actions(self, fault: Fault) -> Fault:
        assert fault.slot is not None
        return replace(fault, last_actions=self._last_actions(fault.slot))

    def _last_actions(self, slot: int) -> tuple[Any, ...]:
        """The actions of the running episode that are still in the block."""
        if self._codecs.action.mailed:
            return ()
        ticket = self._base + int(self._offsets[slot])
        length = int(self._views.record["episode_length"][1 - (ticket & 1), slot]) + 1
        # A caller who once gave wide actions gives them always, as a rule.
        arrays = self._views.wide_action if self._wide_used else self._views.action
        decode = self._codecs.action.decoder(arrays)
        count = min(length, ACTION_ROWS, ticket)
        tickets = range(ticket - count + 1, ticket + 1)
        return tuple(decode(t % ACTION_ROWS, slot, None) for t in tickets)

    def _infos(self, columns: Any, slots: NDArray[np.intp]) -> Infos:
        """Columns and letters as one; what can be a column becomes one."""
        if not self._letters:
            return Infos(columns, {}) if columns else _NO_INFOS
        remainders = {}
        for position, slot in enumerate(slots.tolist()):
            letter = self._letters.get(slot)
            if letter is not None and letter.info:
                remainders[position] = letter.info
        for info in remainders.values():
            new = self._columns.define(info)
            if new:
                for worker in range(len(self._executor.shards)):
                    self._tell(worker, commands.Columns(new))
        return Infos(columns, remainders) if columns or remainders else _NO_INFOS

    def _add_mail(self, step: Step) -> None:
        """Put what came by letter where the block has no place for it."""
        for position, slot in enumerate(step.slots.tolist()):
            letter = self._letters.pop(slot, None)
            if letter is None:
                continue
            if letter.obs is not None:
                self._mailed_obs[slot] = letter.obs
            if letter.final_obs is not None:
                self._mailed_final[slot] = letter.final_obs
            if letter.final_info is not None:
                step.final_infos[position] = letter.final_info
        count = self._codecs.obs.mailed
        if count:
            step.obs = self._codecs.obs.assemble(
                step.obs, _mailed_columns(self._mailed_obs, step.slots, count)
            )
            step.final_obs = self._codecs.obs.assemble(
                step.final_obs, _mailed_columns(self._mailed_final, step.slots, count)
            )

    def observe(self) -> Any:
        """The latest observation of every slot, copied."""
        self._check()
        rows = (self._base + self._offsets) & 1
        leaves = [array[rows, self._all] for array in self._views.obs]
        codec = self._codecs.obs
        mailed = _mailed_columns(self._mailed_obs, self._all, codec.mailed)
        return codec.assemble(leaves, mailed)

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
        chosen = self._choose(slots)
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

    def _ask(
        self, verb: str, slots: Slots | None, payload: Callable[[list[int]], Any]
    ) -> tuple[Any, ...]:
        return self.collect(self.pose(verb, slots, payload))

    def pose(
        self, verb: str, slots: Slots | None, payload: Callable[[list[int]], Any]
    ) -> Question:
        """Ask one question per worker that has any of the slots, and go on."""
        self._check()
        question = Question(self._choose(slots).tolist(), {})
        for slot in question.slots:
            question.by_worker.setdefault(self._place_of(slot)[0], []).append(slot)
        with self._burying():
            self._executor.ask(
                {
                    worker: Ask(
                        verb, tuple(self._place_of(s)[1] for s in its), payload(its)
                    )
                    for worker, its in question.by_worker.items()
                }
            )
        return question

    def collect(
        self, question: Question, timeout: float | None = None
    ) -> tuple[Any, ...]:
        """Wait for the answers to a question, in the order of its slots."""
        self._check()
        with self._burying():
            replies = self._executor.answers(question.by_worker, timeout)
        return self._answers(question.slots, question.by_worker, replies)

    def _answers(
        self,
        chosen: list[int],
        by_worker: dict[int, list[int]],
        replies: dict[int, Reply],
    ) -> tuple[Any, ...]:
        faults = [fault for reply in replies.values() for fault in reply.faults]
        if faults:
            error = error_for(faults[0])
            error.faults = tuple(faults)  # type: ignore[attr-defined]
            raise error
        answers = {
            slot: value
            for worker, its in by_worker.items()
            for slot, value in zip(its, replies[worker].values, strict=True)
        }
        return tuple(answers[slot] for slot in chosen)

    # Checks ---------------------------------------------------------------------------

    def _check(self) -> None:
        if self._state != "open":
            raise _unusable(self._state)
        if threading.get_ident() != self._owner:
            raise OwnershipError(
                "this pool belongs to the thread that made it; make one pool per "
                "thread, or hand the calls to its thread"
            )

    def _choose(self, slots: Slots | None) -> NDArray[np.intp]:
        if slots is None:
            return self._all
        chosen = np.asarray(slots)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise OptionError(f"slots is {slots!r}; expected a list of integers")
        if chosen.size == 0:
            raise OptionError("slots is empty; name at least one, or leave it out")
        if chosen.min() < 0 or chosen.max() >= self.num_envs:
            raise OptionError(f"slots is {slots!r}; there are slots 0 to {self._last}")
        if len(set(chosen.tolist())) != len(chosen):
            raise OptionError(f"slots is {slots!r}; a slot is named twice")
        return chosen.astype(np.intp)

    @property
    def _last(self) -> int:
        return self.num_envs - 1

    def _check_idle(self, slots: NDArray[np.intp]) -> None:
        self._spread()
        busy = slots[self._pending[slots]]
        if len(busy):
            raise OrderError(
                f"slots {busy.tolist()} have a command under way; recv it first"
            )

    def _check_started(self, slots: NDArray[np.intp]) -> None:
        idle = slots[~self._started[slots]]
        if len(idle):
            raise OrderError(
                f"slots {idle.tolist()} have not been reset since they were made or "
                "failed; send_reset them before the first step"
            )

    def _place_of(self, slot: int) -> tuple[int, int]:
        for worker, shard in enumerate(self._executor.shards):
            if slot in shard:
                return worker, slot - shard.start
        raise AssertionError(f"no worker has slot {slot}")

    # Views on loan --------------------------------------------------------------------

    def _lend(self, step: Step) -> None:
        """(debug) Swap the views for private copies that are told when they expire."""
        rows = (self._base + self._offsets[step.slots]) & 1
        loan = _Loan(step, rows)
        self._loans.append(loan)

    def _recall(self, slots: NDArray[np.intp]) -> None:
        """(debug) These slots will be sent to: views of the row they write expire.

        Called before anything is changed, so that a refused send was not sent.
        """
        rows = (self._base + self._offsets[slots] + 1) & 1
        for loan in list(self._loans):
            if loan.expires(slots, rows):
                self._loans.remove(loan)
                loan.collect()

    # Ending ---------------------------------------------------------------------------

    def _tell(self, worker: int, message: Any) -> None:
        try:
            self._executor.tell(worker, message)
        except WorkerDied as error:
            self._bury(error)

    def _bury(self, error: WorkerDied) -> NoReturn:
        """A worker is gone: say what it was doing, and serve no more."""
        self._state = "broken"
        assert error.fault.worker is not None
        shard = self._executor.shards[error.fault.worker]
        self._spread()
        tickets = (self._base + self._offsets) & TICKET_MASK
        for slot in shard:
            # A shard is walked in order: it died on the first slot that is not done.
            if self._pending[slot] and self._executor.done[slot] != tickets[slot]:
                raise error_for(self._last_words(error.fault, slot)) from None
        raise error

    def _last_words(self, fault: Fault, slot: int) -> Fault:
        """What the block still says about a slot whose worker is gone."""
        previous = 1 - (self._base + int(self._offsets[slot]) & 1)
        seed = int(self._views.record["seed"][previous, slot])
        return replace(
            fault,
            slot=slot,
            seed=None if seed < 0 else seed,
            last_actions=self._last_actions(slot),
        )

    @contextmanager
    def _burying(self) -> Iterator[None]:
        try:
            yield
        except WorkerDied as error:
            self._bury(error)

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

    def __del__(self) -> None:
        if getattr(self, "_state", "closed") not in ("closed", "unbuilt", "forked"):
            self.close(2.0)


@dataclass(slots=True)
class Question:
    """Something asked and not yet answered."""

    slots: list[int]
    by_worker: dict[int, list[int]]


@dataclass(slots=True)
class FaceOptions:
    """How a face differs from the pool's own ways."""

    bare_resets: bool = False
    """Episodes after the first start without a seed, as Gymnasium's do."""
    wants_reset: bool = True
    """Whether stepping a slot that was never reset is refused here, or by the env."""
    agree: Callable[[list[EnvSpec]], EnvSpec] = None  # type: ignore[assignment]
    """The one spec for all slots, or SpacesDiffer."""

    def __post_init__(self) -> None:
        if self.agree is None:
            self.agree = same_spaces


def same_spaces(specs: list[EnvSpec], before: str = "", after: str = "") -> EnvSpec:
    """The first spec, if all slots have its spaces."""
    first = specs[0]
    for slot, spec in enumerate(specs):
        for name in ("observation_space", "action_space"):
            ours, theirs = getattr(spec, name), getattr(first, name)
            if ours != theirs:
                raise SpacesDiffer(
                    f"{before}slot {slot} has another {name.replace('_', ' ')} than "
                    f"slot 0: {ours} instead of {theirs}{after}"
                )
    return first


class _Row:
    """One row of the block as the arrays of a Step; made once and used again."""

    def __init__(
        self,
        codecs: Codecs,
        views: DataViews,
        row: int,
        slots: NDArray[np.intp],
        part: slice = slice(None),
    ) -> None:
        self._slots = slots
        self._codec = codecs.obs
        record = views.record[row, part]
        self._leaves = [array[row, part] for array in views.obs]
        self._final = [array[0, part] for array in views.final_obs]
        self._scalars = [record[name] for name in _SCALARS]

        self._views_step = self._step(_NO_INFOS, copy=False)
        # Letters replace the observations of a batch with mailed leaves.
        self._reusable = not codecs.obs.mailed

    def step(self, infos: Infos, copy: bool) -> Step:
        """The row as it stands.

        A Step of views lives as long as its views, so the same one serves again when
        the row does: making one costs 1 µs, a fiftieth of eight CartPole steps.
        """
        if copy or not self._reusable:
            return self._step(infos, copy)
        step = self._views_step
        step.infos = infos
        step.final_infos = {}
        return step

    def _step(self, infos: Infos, copy: bool) -> Step:
        leaves, final, scalars = self._leaves, self._final, self._scalars
        if copy:
            leaves = [leaf.copy() for leaf in leaves]
            final = [leaf.copy() for leaf in final]
            scalars = [scalar.copy() for scalar in scalars]
        return _step(self._codec, self._slots, leaves, final, scalars, infos)


def _gather(
    codecs: Codecs,
    views: DataViews,
    rows: NDArray[np.int64],
    slots: NDArray[np.intp],
    infos: Infos,
) -> Step:
    """Slots from anywhere in the block, copied together."""
    record = views.record[rows, slots]
    return _step(
        codecs.obs,
        slots,
        [array[rows, slots] for array in views.obs],
        [array[0, slots] for array in views.final_obs],
        [np.ascontiguousarray(record[name]) for name in _SCALARS],
        infos,
    )


def _step(
    codec: Any,
    slots: NDArray[np.intp],
    leaves: list[Any],
    final: list[Any],
    scalars: list[Any],
    infos: Infos,
) -> Step:
    # With mailed leaves the batch is assembled when the letters are opened.
    whole = not codec.mailed
    reward, terminated, truncated, started, valid, total, length, seed = scalars
    return Step(
        slots,
        codec.assemble(leaves, ()) if whole else leaves,
        reward,
        terminated,
        truncated,
        started,
        valid,
        codec.assemble(final, ()) if whole else final,
        total,
        length,
        seed,
        infos,
        {},
    )


def _mailed_columns(
    values: dict[int, list[Any]], slots: NDArray[np.intp], count: int
) -> list[tuple[Any, ...]]:
    if not count:
        return []
    nothing = [None] * count
    rows = [values.get(slot, nothing) for slot in slots.tolist()]
    return list(zip(*rows, strict=True))


class _Loan:
    """(debug) The private copies behind one Step's views, and when they expire."""

    def __init__(self, step: Step, rows: NDArray[np.int64]) -> None:
        self._slots = set(step.slots.tolist())
        self._row = dict(zip(step.slots.tolist(), rows.tolist(), strict=True))
        self._arrays: list[weakref.ref[NDArray[Any]]] = []
        for name in ("obs", "final_obs", *_SCALARS):
            setattr(step, name, self._private(getattr(step, name)))

    def _private(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._private(part) for key, part in value.items()}
        if isinstance(value, tuple):
            return tuple(self._private(part) for part in value)
        if not isinstance(value, np.ndarray):
            return value
        copied = value.copy()
        self._arrays.append(weakref.ref(copied))
        return copied

    def expires(self, slots: NDArray[np.intp], rows: NDArray[np.int64]) -> bool:
        """Whether one of its slots is about to write the row it was lent."""
        written = zip(slots.tolist(), rows.tolist(), strict=True)
        return any(self._row.get(slot) == row for slot, row in written)

    def collect(self) -> None:
        """Spoil the memory; whoever still holds it is told."""
        held = [array for array in (ref() for ref in self._arrays) if array is not None]
        for array in held:
            array.view(np.uint8).fill(0xFB) if array.flags.c_contiguous else None
        if held:
            raise StaleViewError(
                f"a view of slots {sorted(self._slots)} from an earlier recv is still "
                "held, and its memory is about to be reused; copy what you keep, or "
                "use copy=True"
            )


class _Episodes:
    """What `send_reset` says about each slot's episode."""

    def __init__(
        self,
        count: int,
        seeds: Sequence[int | None] | None,
        options: Any,
        tasks: Sequence[Any] | None,
    ) -> None:
        for name, values in (("seeds", seeds), ("tasks", tasks)):
            if values is not None and len(values) != count:
                raise OptionError(
                    f"{len(values)} {name} for {count} slots; one for each"
                )
        listed = options is not None and not isinstance(options, dict)
        if listed and len(options) != count:
            raise OptionError(f"{len(options)} options for {count} slots; one for each")
        self._seeds = seeds
        self._options = options
        self._tasks = tasks

    def at(self, position: int) -> tuple[int, dict[str, Any]]:
        """The seed for the block, and what goes by mail."""
        message: dict[str, Any] = {}
        seed = None if self._seeds is None else self._seeds[position]
        number = -1
        if seed is not None:
            seed = int(seed)
            if seed >> 63:
                message["seed"] = seed
            else:
                number = seed
        options = self._options
        if options is not None and not isinstance(options, dict):
            options = options[position]
        if options is not None:
            message["options"] = options
        if self._tasks is not None and self._tasks[position] is not NO_TASK:
            message["task"] = self._tasks[position]
        return number, message


def _mode(autoreset: str) -> int:
    if autoreset not in MODES:
        raise OptionError(
            f"autoreset is {autoreset!r}; choose one of {', '.join(MODES)}"
        )
    return MODES[autoreset]


def _info_choice(infos: str | Sequence[str]) -> str | tuple[str, ...]:
    if isinstance(infos, str):
        if infos not in ("all", "final", "none"):
            raise OptionError(
                f'infos is {infos!r}; choose "all", "final", "none" or a list of keys'
            )
        return infos
    return tuple(infos)


def _root_seed(seed: int | None) -> int:
    if seed is None:
        return int.from_bytes(os.urandom(8), "little") >> 1
    given: object = seed
    whole = isinstance(given, (int, np.integer)) and not isinstance(given, bool)
    if not whole or seed < 0:
        raise OptionError(f"seed is {seed!r}; it must be an integer >= 0")
    return int(seed)


def _unusable(state: str) -> CorralError:
    if state == "forked":
        return OwnershipError(
            "this pool belongs to the parent of this forked process; make one here"
        )
    if state == "broken":
        return ClosedError("a worker of this pool died; close it and make a new one")
    return ClosedError("this pool is closed")


_open_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _disown_in_child() -> None:
    for pool in list(_open_pools):
        pool._state = "forked"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_in_child)
