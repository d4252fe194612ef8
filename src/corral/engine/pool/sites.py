"""Sites: objects beside the envs, one in each worker, that step them there.

    sites = Sites(pool, build)          build(pool of the worker's slots) -> any object
    sites.call("collect", (128,))       one value per worker

    parent ── SiteCall(method, arguments) ──► worker: method(*arguments)
                                                       steps its slots, as often as
                                                       it likes, with nothing sent
    parent ◄────────────────── SiteReply ──── worker

A site's pool is a `Pool` of its worker's slots, with the same envs, seeds and tasks, so
stepping them from a site or from the caller comes to the same rows, and the two may
alternate. Under `serial` the one site has the pool itself.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from corral.engine.faults.report import error_for, one_error_for
from corral.engine.layout.plan import ANSWERING, BEGIN_TICKET, SITE_CALLED, WORD_MASK
from corral.engine.pool.local import Build, LocalSetup, SiteCall, SiteReply, faults_of
from corral.engine.pool.pool import Pool
from corral.engine.pool.state import ACTING, OPEN, SENDING, Lifecycle
from corral.engine.transport.mailbox import deadline_after
from corral.engine.worker.commands import Ask, PickledAsk, Verb
from corral.engine.worker.letters import Reply
from corral.engine.worker.serialization import Unpacked, pack
from corral.engine.worker.worker import Worker
from corral.errors import CorralError, Fault, FaultError, OptionError, OrderError

_KEYS = count()
# By pool; workers drop the others.
_IN_USE: weakref.WeakKeyDictionary[Lifecycle, weakref.WeakSet[Sites]]
_IN_USE = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class SiteContext:
    """What a site knows of its worker beside the pool of its slots.

    Attributes:
        first_slot: The number of its first slot in seeds: in a cluster, the whole pool
            is a part of it.
        step_timeout: Seconds allowed for one step, or for one decision; None for any.
        mark: Lets the parent see what the site does, from now on: ANSWERING or another
            command of `layout.plan`.
    """

    first_slot: int
    step_timeout: float | None
    mark: Callable[[int], None]

    @classmethod
    def of(cls, pool: Pool) -> SiteContext:
        """The context of the site that was given this pool."""
        assignment = pool._assignment
        first = assignment.options.first_slot + pool.slots.start
        return cls(first, assignment.step_timeout, pool._executor.mark)


class Sites:
    """One object in each worker of a pool, beside the worker's envs.

    Args:
        pool: whose envs they step.
        build: `build(pool) -> object`, called once in each worker with the pool of its
            slots; `pool.slots` has their numbers. Again in a worker that replaces
            another.
        name: how faults name what the objects do; by default "site." and the method.
    """

    def __init__(self, pool: Pool, build: Build, name: str | None = None) -> None:
        self._pool, self._key, self._name = pool, next(_KEYS), name
        self._executor, self._state = pool._executor, pool._state
        self._recovery = pool._recovery
        self._lifecycle = pool._lifecycle
        _IN_USE.setdefault(self._lifecycle, weakref.WeakSet()).add(self)
        self._travels = self._executor.survives_deaths
        self._build = build
        self._setup: Any = None
        if not self._executor.inline:
            what = (LocalSetup.of(pool), build)
            self._setup = self._packed(what, "what builds a site")
        # By worker that has a site: how often it was replaced before.
        self._built: dict[int, int] = {}
        self._pending: dict[int, SiteCall] = {}
        self._asked: set[int] = set()
        self._results: dict[int, Any] = {}
        self._faults: dict[int, list[Fault]] = {}
        self._site: Any = None
        self._ask(None, [()] * len(self._executor.shards))
        self.finish()

    def call(
        self,
        method: str,
        args: tuple[Any, ...] | list[tuple[Any, ...]] = (),
        timeout: float | None = None,
        plain: bool = False,
    ) -> list[Any]:
        """Have every worker call a method of its site; return the results."""
        self.start(method, args, plain)
        return self.finish(timeout)

    def start(
        self,
        method: str,
        args: tuple[Any, ...] | list[tuple[Any, ...]] = (),
        plain: bool = False,
    ) -> None:
        """Ask every worker to call a method of its site; do not wait.

        Until `finish`, the pool takes no other command.

        Args:
            method: its name.
            args: the arguments for all, or a list with a tuple for each worker.
            plain: whether they have nothing in them that users wrote: such arguments
                are pickled in a tenth of the time.
        """
        workers = len(self._executor.shards)
        each = args if isinstance(args, list) else [args] * workers
        if len(each) != workers:
            raise OptionError(
                f"args has {len(each)} tuples for {workers} workers; give one for each"
            )
        self._ask(method, each, plain)

    def _ask(
        self,
        method: str | None,
        each: Sequence[tuple[Any, ...]],
        plain: bool = False,
    ) -> None:
        self._lifecycle.check()
        state = self._state
        if state.waiting:
            raise OrderError(
                f"slots {state.pending().tolist()} have a pending command; call recv "
                "or drain before the sites are at work"
            )
        state.enter()
        if self._recovery.recovered:
            # A call that was lost has rung too little or too often; nothing is pending.
            state.taken = self._executor.rings()
        calls: dict[int, SiteCall] = {}
        packed: dict[int, Any] = {}
        for arguments in each:
            if id(arguments) not in packed:
                packed[id(arguments)] = self._packed(arguments, "the arguments", plain)
        kept = frozenset(sites._key for sites in _IN_USE[self._lifecycle])
        for worker, shard in enumerate(self._executor.shards):
            started = state.started[shard.start : shard.stop].tobytes()
            arguments = packed[id(each[worker])]
            obs = self._pool._inbox.mailed_obs(shard)
            call = SiteCall(
                self._key, method, arguments, started, obs, kept, name=self._name
            )
            calls[worker] = call
        self._lifecycle.state = SENDING
        # Kept there: after Ctrl-C these sites may be dropped while they are at work.
        self._lifecycle.drain_sites = self.drain
        self._asked, self._results, self._faults = set(), {}, {}
        self._pending = calls  # last: what is pending is waited for
        if not self._executor.inline:
            self._post_all()
        if self._lifecycle.state == SENDING:
            self._lifecycle.state = ACTING
        state.leave()

    def _packed(self, value: Any, what: str, plain: bool = False) -> Any:
        if not self._travels:
            return value
        return Unpacked(pickle.dumps(value, -1) if plain else pack(value, what))

    def _post_all(self) -> None:
        """Send every worker its call; again, if it ended before it began."""
        while missing := self._pending.keys() - self._asked:
            # By what differs from worker to worker: usually all get the same message.
            packed: dict[Any, PickledAsk] = {}
            questions = {
                worker: self._question(worker, packed) for worker in sorted(missing)
            }
            try:
                for worker in self._executor.each_asked(questions):
                    self._built[worker] = self._recovery.replaced[worker]
                    self._asked.add(worker)
            except FaultError as error:
                self._lose(error)

    def _question(self, worker: int, known: dict[Any, PickledAsk]) -> Ask | PickledAsk:
        """The call of a worker; with what builds the site, if it has none.

        Args:
            worker: which.
            known: pickled calls, by what differs between those of workers.
        """
        call = self._pending[worker]
        if self._built.get(worker) != self._recovery.replaced[worker]:
            call = replace(call, setup=self._setup)
        lost = self._recovery.lost_in(self._executor.shards[worker])
        if lost:
            # Without what replays the episode, which the parent has.
            told = {at: replace(fault, episode=None) for at, fault in lost.items()}
            call = replace(call, lost=self._packed(told, "a fault"))
        question = Ask("site", (), call)
        if not self._travels:
            return question
        same = call.setup is None and call.lost is None and not call.obs
        key = (call.started, id(call.arguments)) if same else worker
        if key not in known:
            # Plain, since what users gave is packed: 10 µs, not 50.
            known[key] = PickledAsk(question.number, pickle.dumps(question))
        return known[key]

    def _lose(self, error: FaultError) -> None:
        """Replace a worker that died or hung; its call has failed, if it had begun."""
        fault, state = error.fault, self._state
        worker, dispatcher = fault.worker, self._pool._dispatcher
        if worker is None or not self._executor.control.vitals[worker, SITE_CALLED]:
            self._asked -= {worker}
            dispatcher.recover(error)
            return
        call, shard = self._pending.pop(worker), self._executor.shards[worker]
        part = slice(shard.start, shard.stop)
        words = self._executor.control.episode[part, BEGIN_TICKET].tolist()
        begun = [*map(state.has_begun, shard, words)]
        state.catch_up(state.done[part].astype(np.int64), np.array(begun), shard.start)
        if fault.slot is None:
            making = fault.command == "construct"
            command = call.making if making else call.command
            lost = error_for(replace(fault, command=command))
            assert isinstance(lost, FaultError)
            self._results[worker] = dispatcher.recover(lost)
        else:
            # The command that it was at, as if the caller had sent it.
            at = np.array([fault.slot])
            state.send(at, Verb.STEP)
            self._results[worker] = dispatcher.recover(error)
            state.withdraw(at)
        self._recovery.forget_lost(told=shard)

    def finish(self, timeout: float | None = None) -> list[Any]:
        """Wait for the call; one value for each worker, in the order of `pool.shards`.

        A worker that died or hung and was replaced has its Fault there.

        Args:
            timeout: seconds until TimeoutError; the call stays pending.

        Raises:
            EnvError: an env raised, or a site did.
        """
        if not self._is_at_work:
            raise OrderError("no call of these sites is pending; call start first")
        if self._lifecycle.state != ACTING:
            self._lifecycle.check()
        began = perf_counter()
        deadline = deadline_after(timeout)
        try:
            while self._pending:
                if not self._collect(deadline):
                    raise TimeoutError(
                        f"the sites did not finish within {timeout} s; workers "
                        f"{sorted(self._pending)} are still at work"
                    )
        finally:
            self._state.waited_since(began)
        self._catch_up()
        if self._lifecycle.state == ACTING:
            self._lifecycle.state, self._lifecycle.drain_sites = OPEN, None
        faults = [self._faults[worker] for worker in sorted(self._faults)]
        if faults:
            raise one_error_for([*chain.from_iterable(faults)])
        results, self._results = self._results, {}
        return [results[worker] for worker in sorted(results)]

    def drain(self) -> None:
        """Wait for a call that Ctrl-C has left pending, and drop its values."""
        if self._is_at_work:
            with suppress(CorralError):
                self.finish()

    @property
    def _is_at_work(self) -> bool:
        """Whether a call was started that is not finished."""
        life = self._lifecycle
        # The second after Ctrl-C between the last reply and the end of `finish`.
        ours = life.state == ACTING and life.drain_sites == self.drain
        return bool(self._pending) or ours

    def take_values(self) -> list[Any]:
        """What workers have returned to a call that raised an error, in any order."""
        results, self._results = self._results, {}
        return list(results.values())

    def _collect(self, deadline: float) -> bool:
        """Wait for replies, and take them; False if none came in time."""
        if self._executor.inline:
            self._run_here()
            return True
        try:
            replies = self._executor.first_answers(
                self._pending, lambda: monotonic() > deadline
            )
        except FaultError as error:
            self._take(self._executor.answered(self._pending))
            with self._lifecycle.sending(ACTING):
                self._lose(error)
                self._post_all()
            return True
        self._take(replies)
        return bool(replies)

    def _take(self, replies: dict[int, Reply]) -> None:
        for worker, reply in replies.items():
            with self._lifecycle.sending(ACTING):  # taken as a whole, and once
                self._take_one(worker, reply)
            complete = self._pool._dispatcher.fault_details.of_site
            for fault in reply.restarted if isinstance(reply, SiteReply) else ():
                self._recovery.env_rebuilt(complete(fault))

    def _take_one(self, worker: int, reply: Reply) -> None:
        """One worker is done."""
        del self._pending[worker]
        self._executor.forget_answer(worker)
        self._executor.control.vitals[worker, SITE_CALLED] = 0.0
        state, pool, shard = self._state, self._pool, self._executor.shards[worker]
        complete = pool._dispatcher.fault_details.of_site
        state.taken = state.taken + reply.rings & WORD_MASK
        if isinstance(reply, SiteReply):
            state.started[shard.start : shard.stop] = np.frombuffer(reply.started, "?")
            if not reply.built:
                del self._built[worker]
            if reply.seed != pool.seed:
                self._recovery.set_root_seed(reply.seed)
            if reply.obs:
                pool._inbox.set_mailed_obs(shard, reply.obs)
        if reply.faults:
            self._faults[worker] = [complete(fault) for fault in reply.faults]
        self._results[worker] = reply.values[0] if reply.values else None

    def _catch_up(self) -> None:
        """Count what all sites have sent to their slots."""
        if self._executor.inline:
            return  # the pool has counted
        state = self._state
        state.catch_up(state.done.astype(np.int64), state.started)
        if state.assigned:
            state.forget_assigned(self._executor.control.episode[:, BEGIN_TICKET])
        self._recovery.forget_lost()

    def _run_here(self) -> None:
        """Under `serial`, the site steps the pool itself."""
        self._lifecycle.state = OPEN
        self._executor.run_in_worker(self._answer_here)

    def _answer_here(self, worker: Worker) -> None:
        (call,) = self._pending.values()
        worker.mark(ANSWERING)
        try:
            if call.method is None:
                self._site = self._build(self._pool)
                self._results[0] = None
            else:
                self._results[0] = getattr(self._site, call.method)(*call.arguments)
            self._pool.drain()
        except CorralError:
            raise
        except Exception as error:
            command = call.making if worker.constructs else call.command
            self._faults[0] = faults_of(error, command, 0)
        finally:
            self._pending.clear()
