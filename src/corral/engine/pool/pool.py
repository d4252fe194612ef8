"""The pool itself: send, recv, and questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import get_ident
from time import monotonic, perf_counter
from types import TracebackType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from corral.core import Autoreset, EnvSpec, Step
from corral.engine.adapters.factories import (
    EnvSource,
    Wrap,
    batched_factories_for,
    factories_for,
)
from corral.engine.executors.assign import Placement, usable_cores
from corral.engine.executors.contract import Assignment
from corral.engine.executors.placement import place
from corral.engine.faults.report import error_for, one_error_for
from corral.engine.keywords import checked_keywords
from corral.engine.layout.codec import Codecs
from corral.engine.layout.columns import Columns
from corral.engine.pool.actions import Actions
from corral.engine.pool.batched_envs import BatchedEnvs, check_batched
from corral.engine.pool.caller_time import CallerTime
from corral.engine.pool.cpu_contention import CpuContention
from corral.engine.pool.dispatch import Dispatcher
from corral.engine.pool.episode_requests import EpisodeRequests
from corral.engine.pool.fault_details import FaultDetails, with_rebuild_spec
from corral.engine.pool.inbox import Inbox
from corral.engine.pool.ledger import Ledger, Slots
from corral.engine.pool.lifecycle import CLOSED, OPEN, SENDING, Lifecycle
from corral.engine.pool.options import (
    ApiOptions,
    Episodes,
    closing_time,
    fault_policy,
    info_choice,
    limits_for,
    mode_of,
    own_process_reason,
    process_reasons,
    root_seed,
)
from corral.engine.pool.questions import Question
from corral.engine.pool.receive import Receiver
from corral.engine.pool.recovery import Recovery
from corral.engine.pool.rows import BlockRow
from corral.engine.pool.stale_views import StaleViews
from corral.engine.pool.stats import Stats, stats_of
from corral.engine.worker import commands
from corral.engine.worker.autoreset import SAME_STEP
from corral.engine.worker.commands import Verb
from corral.engine.worker.shard import ShardOptions
from corral.errors import (
    Fault,
    FaultError,
    IsolationError,
    OptionError,
    OrderError,
    SpaceMismatch,
)


class Pool:
    """Many environments behind send and recv.

    Args:
        env: an id, "module:function", a factory, Gymnasium's spec of an env, or a list
            with one of those per slot.
        num_envs: how many slots; known already when a list of factories is given.
        env_kwargs: keyword arguments for the id or factory.
        wrappers: put around every env, the first one innermost.
        backend: "auto" measures; "serial", "thread" and "process" do as they say.
        workers: how many threads or processes; as many as usable cores by default.
        isolation: "slot" gives every slot a process of its own; "auto" does so unless
            it is known that envs may share one: the env says so, `corral doctor
            --save` has found so, or two of them do together what one does alone, which
            is tried; "shared" puts them together without asking.
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
        reset_timeout: seconds for one reset.
        step_timeout: seconds for one step. All three need processes.
        on_fault: "raise", or "restart" what broke and go on; needs processes.
        on_timeout: the same for a worker that was not in time; as `on_fault` if None.
        max_restarts: how often each slot may be restarted.
        restarts_per_minute: the same within any minute.
        memory_limit: bytes; a slot whose process holds more gets a new one at the end
            of its episode. Needs isolation="slot".
        close_timeout: seconds for envs to finish when the pool is closed.
        batched: whether `env` builds a `gymnasium.vector.VectorEnv` of `num_envs`
            slots, one in each worker, whose sub-envs are the slots.
        check_actions: refuse actions that are not in their space, before anything is
            sent; otherwise the envs get them, as with Gymnasium.
    """

    layout: Placement
    """Where the slots run, and why."""
    spec: EnvSpec
    """What one env says about itself."""

    @checked_keywords()
    def __init__(
        self,
        env: EnvSource,
        num_envs: int | None = None,
        *,
        env_kwargs: dict[str, Any] | None = None,
        wrappers: Sequence[Wrap] = (),
        backend: str = "auto",
        workers: int | None = None,
        isolation: str | None = "auto",
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
        reset_timeout: float | None = None,
        step_timeout: float | None = None,
        on_fault: str = "raise",
        on_timeout: str | None = None,
        max_restarts: int = 100,
        restarts_per_minute: int = 10,
        memory_limit: int | None = None,
        close_timeout: float = 10.0,
        batched: bool = False,
        check_actions: bool = False,
        _api: ApiOptions | None = None,
    ) -> None:
        self._lifecycle = Lifecycle()
        self._api = _api or ApiOptions()
        self._mode = mode_of(autoreset)
        self.autoreset = autoreset
        self.seed = root_seed(seed)
        self.copy = copy
        self.debug = debug
        self.check_actions = check_actions
        self.close_timeout = closing_time(close_timeout)
        self._policy = fault_policy(
            on_fault, on_timeout, max_restarts, restarts_per_minute
        )
        assignment = Assignment(
            factories=(batched_factories_for if batched else factories_for)(
                env, num_envs, env_kwargs, wrappers
            ),
            shards=[],
            options=ShardOptions(
                root_seed=self.seed,
                seeded=not self._api.bare_resets,
                infos=info_choice(infos),
                sample_task=sample_task,
                isolate_rng=isolate_rng,
                restarts=self._policy.budget if self._policy.deaths else None,
                memory_limit=memory_limit,
                batched=check_batched(
                    batched, isolate_rng=isolate_rng, memory_limit=memory_limit
                ),
            ),
            worker_init=worker_init,
            per_worker=per_worker,
            shared=dict(shared or {}),
            threads_per_worker=threads_per_worker,
            devices=tuple(devices),
            cores=usable_cores(),
            start_timeout=start_timeout,
            step_timeout=step_timeout,
            reset_timeout=reset_timeout,
            close_timeout=self.close_timeout,
            needs_processes=process_reasons(
                isolation,
                start_timeout=start_timeout,
                step_timeout=step_timeout,
                reset_timeout=reset_timeout,
                on_fault=on_fault,
                on_timeout=on_timeout,
                memory_limit=memory_limit,
            ),
        )
        self._options = assignment.options
        self._assignment = assignment
        self.num_envs = assignment.slots
        try:
            self._place_slots(backend, workers, isolation)
        except IsolationError:
            given = workers is not None and not self._api.own_processes
            if backend not in ("auto", "process") or given:
                raise
            self._place_slots(backend, None, "slot")
            self.layout = replace(self.layout, reason=own_process_reason(self.spec))

    def _place_slots(
        self, backend: str, workers: int | None, isolation: str | None
    ) -> None:
        """Choose where the slots run, and build their envs there."""
        shards: list[range] = []
        try:
            self._executor, self.layout = place(
                self._assignment,
                backend,
                workers,
                isolation,
                self._api.own_processes,
            )
            shards = self._executor.shards
            self._open()
        except FaultError as error:
            here = bool(shards) and self.layout.backend != "process"
            fault = with_rebuild_spec(error.fault, self._assignment, shards, here)
            complete = error_for(fault)
            raise complete from complete.__cause__

    def _open(self) -> None:
        try:
            self.specs = self._executor.build()
            self.spec = self._api.agree(self.specs)
            self._batches = self._new_batches()
            codecs = Codecs.of(self.spec)
            self._action_check = limits_for(self.spec) if self.check_actions else None
            self._views = self._executor.bind(codecs)
            self._run_all: Callable[[int], None] | None = None
            """How to step every slot in one call, where that can be done (serial)."""
            if not codecs.action.mailed:
                self._run_all = getattr(self._executor, "run_all", None)
            self._caller_time = CallerTime()
            self._cpu_contention = CpuContention(
                vitals.pid for vitals in self._executor.vitals()
            )
            self._connect(codecs)
            self._lifecycle.open()
        except BaseException:
            self._executor.close(2.0)
            self._lifecycle.close()
            raise

    def _connect(self, codecs: Codecs) -> None:
        """Put together those who send, know, wait for, and deliver."""
        executor, views = self._executor, self._views
        self._ledger = ledger = Ledger(self.num_envs)
        self._actions = Actions(codecs.action, views)
        columns = Columns(views.arena, views.presence)
        empty_finals = self._api.empty_finals and self._options.infos != "none"
        self._inbox = inbox = Inbox(codecs.obs, columns, empty_finals)
        self._stale_views, self._requests = StaleViews(), EpisodeRequests()
        self._fault_details = fault_details = FaultDetails(
            self._assignment, executor, ledger, self._actions, views, self._requests
        )
        self._recovery = self._new_recovery()
        self._receiver = Receiver(
            codec=codecs.obs,
            views=views,
            rows=(
                BlockRow(codecs.obs, views, 0, ledger.all),
                BlockRow(codecs.obs, views, 1, ledger.all),
            ),
            executor=executor,
            ledger=ledger,
            inbox=inbox,
            stale_views=self._stale_views,
            requests=self._requests,
            fault_details=fault_details,
            recovery=self._recovery,
            same_step=self._mode == SAME_STEP,
        )
        self._dispatcher = Dispatcher(
            lifecycle=self._lifecycle,
            executor=executor,
            ledger=ledger,
            inbox=inbox,
            caller_time=self._caller_time,
            fault_details=fault_details,
            receiver=self._receiver,
            recovery=self._recovery,
        )

    def _new_batches(self) -> BatchedEnvs | None:
        """What the envs can do, where they are batches."""
        if not self._options.batched:
            return None
        batches = BatchedEnvs(self.spec, self._executor.shards)
        batches.check_mode(self._mode)
        batches.check_restarts(self._policy.deaths or self._policy.hangs)
        return batches

    def _new_recovery(self) -> Recovery | None:
        """Whoever replaces workers, if any are to be replaced."""
        policy = self._policy
        if not (policy.deaths or policy.hangs or self._options.memory_limit):
            return None
        return Recovery(
            policy,
            self._executor,
            self._ledger,
            self._inbox,
            self._views,
            self._fault_details,
        )

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
        self._lifecycle.check()
        self._caller_time.enter(not self._ledger.waiting)
        chosen = self._ledger.choose(slots)
        self._ledger.check_idle(chosen)
        if self._batches is not None:
            self._batches.check_reset(chosen)
        episodes = Episodes(len(chosen), seeds, options, tasks)
        numbers: list[int] = []
        messages: list[tuple[int, Any]] = []
        requests: dict[int, dict[str, Any]] = {}
        for position, slot in enumerate(chosen.tolist()):
            number, message = episodes.at(position)
            numbers.append(number)
            if message:
                requests[slot] = message
                worker, index = self._dispatcher.worker_and_index(slot)
                messages.append((worker, commands.NextEpisode(index, **message)))
        self._expire_views(chosen)
        if seed is not None:
            self._new_root(seed)
        self._executor.reset_seed[chosen] = numbers
        self._dispatcher.post_each(messages)
        self._lifecycle.state = SENDING
        self._ledger.send(chosen)
        self._ledger.start(chosen)
        self._requests.reset(chosen, self._ledger.tickets(chosen), requests)
        self._dispatcher.dispatch(chosen, Verb.RESET, 0)
        self._sent()

    def send(
        self,
        actions: Any,
        slots: Slots | None = None,
        *,
        autoreset: Autoreset | None = None,
    ) -> None:
        """Step these slots, or all; `actions` in the order of `slots`."""
        self._lifecycle.check()
        self._caller_time.enter(not self._ledger.waiting)
        mode = self._mode if autoreset is None else self._other_mode(autoreset)
        if slots is not None:
            self._send_some(actions, self._ledger.choose(slots), mode)
            return
        ledger = self._ledger
        if ledger.waiting or ledger.unstarted or self._stale_views.lent:
            self._check_sendable(ledger.all)
        leaves, mailed = self._actions.codec.split(actions, self.num_envs)
        if self._action_check is not None:
            self._action_check.check(leaves, mailed, ledger.all)
        if mailed:
            self._mail_actions(ledger.all, mailed)
        even = ledger.even()
        self._lifecycle.state = SENDING
        ledger.send_all()
        if even:
            wide = self._actions.write_all(leaves, ledger.base)
        else:
            wide = self._actions.write(leaves, ledger.tickets(ledger.all), ledger.all)
        self._dispatcher.dispatch_all(mode | wide)
        self._sent()

    def _sent(self) -> None:
        self._lifecycle.sending_done()
        self._caller_time.leave()

    def _other_mode(self, autoreset: Autoreset) -> int:
        """What one send asks for instead of the pool's own."""
        mode = mode_of(autoreset)
        if self._batches is not None:
            self._batches.check_mode(mode)
        self._receiver.same_step |= mode == SAME_STEP
        return mode

    def _send_some(self, actions: Any, slots: NDArray[np.intp], mode: int) -> None:
        self._check_sendable(slots)
        if self._batches is not None:
            self._batches.check_step(slots)
        leaves, mailed = self._actions.codec.split(actions, len(slots))
        if self._action_check is not None:
            self._action_check.check(leaves, mailed, slots)
        if mailed:
            self._mail_actions(slots, mailed)
        self._lifecycle.state = SENDING
        self._ledger.send(slots)
        wide = self._actions.write(leaves, self._ledger.tickets(slots), slots)
        self._dispatcher.dispatch(slots, Verb.STEP, mode | wide)
        self._sent()

    def send_raw(self, actions: Sequence[Any], slots: Slots | None = None) -> None:
        """Step these slots, or all, with actions that go to the envs as they are."""
        self._lifecycle.check()
        self._caller_time.enter(not self._ledger.waiting)
        chosen = self._ledger.choose(slots)
        self._check_sendable(chosen)
        messages: list[tuple[int, Any]] = []
        for slot, action in zip(chosen.tolist(), actions, strict=True):
            worker, index = self._dispatcher.worker_and_index(slot)
            messages.append((worker, commands.RawAction(index, action)))
        self._dispatcher.post_each(messages)
        self._lifecycle.state = SENDING
        self._ledger.send(chosen)
        self._actions.skip(self._ledger.tickets(chosen), chosen)
        self._dispatcher.dispatch(chosen, Verb.STEP, self._mode)
        self._sent()

    def _mail_actions(self, slots: NDArray[np.intp], mailed: list[Any]) -> None:
        messages: list[tuple[int, Any]] = []
        for position, slot in enumerate(slots.tolist()):
            worker, index = self._dispatcher.worker_and_index(slot)
            values = [column[position] for column in mailed]
            messages.append((worker, commands.MailedAction(index, values)))
        self._dispatcher.post_each(messages)

    def assign(self, slot: int, task: Any) -> None:
        """Give a task to the slot's first episode that starts after what was sent."""
        self._lifecycle.check()
        (chosen,) = self._ledger.choose([slot]).tolist()
        worker, index = self._dispatcher.worker_and_index(chosen)
        self._dispatcher.post_each(
            [(worker, commands.NextEpisode(index, task=task))], hold=False
        )
        self._requests.assign(chosen, self._ledger.ticket(chosen), task)
        if self._recovery is not None:
            self._recovery.task_assigned(chosen, task)

    def _new_root(self, seed: int) -> None:
        self.seed = self._options.root_seed = root_seed(seed)
        if self._recovery is not None:
            self._recovery.root_seed_set(self.seed)
        self._dispatcher.post_all(commands.NewRootSeed(self.seed))

    def step_inline(self, actions: Any) -> Step | None:
        """`send` to all and `recv` views of all, where the caller runs the envs.

        What eight CartPoles cost beyond their own steps is mostly the calls on the way:
        of an env that does nothing, a batch of 8 takes 7.7 µs with send and recv and
        6.6 µs so.

        Returns:
            None, with nothing done, wherever send and recv have more to look at.
        """
        lifecycle, ledger, run_all = self._lifecycle, self._ledger, self._run_all
        if (
            run_all is None
            or lifecycle.state != OPEN
            or ledger.waiting
            or ledger.unstarted
            or self._stale_views.lent
            or not ledger.even()
            or get_ident() != lifecycle.owner
        ):
            return None
        clock = self._caller_time
        clock.enter(idle=True)
        try:
            leaves, mailed = self._actions.codec.split(actions, self.num_envs)
            if self._action_check is not None:
                self._action_check.check(leaves, mailed, ledger.all)
        except SpaceMismatch:
            return None  # send says it again, to whoever handles it
        ledger.send_all()
        wide = self._actions.write_all(leaves, ledger.base)
        clock.leave()
        began = perf_counter()
        try:
            run_all(self._mode | wide)
        finally:
            clock.waited(began)
        return self._take_all(copy=False)

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

        Raises:
            EnvError: an env raised; `error.step` has the results of the other slots.
            WorkerDied, WorkerHung: the pool can only be closed; the same, as far as
                the results were there.
        """
        self._lifecycle.check()
        ledger = self._ledger
        if not ledger.waiting:
            raise OrderError("recv with nothing sent: send or send_reset first")
        copy = self.copy if copy is None else copy
        if slots is not None:
            return self._take(
                self._wait_for_slots(slots, min_slots, max_slots, timeout), copy
            )
        if min_slots is None and max_slots is None:
            count = ledger.waiting
            if not self._dispatcher.wait_for_results(count, timeout):
                raise self._timeout_error(count, timeout)
            if count == self.num_envs and ledger.even():
                return self._take_all(copy)
            return self._take(np.flatnonzero(ledger.pending()), copy)
        low, high = self._bounds(min_slots, max_slots)
        return self._take(ledger.oldest(self._wait_for_some(low, timeout), high), copy)

    def _wait_for_some(self, low: int, timeout: float | None) -> NDArray[np.intp]:
        """Wait until so many slots are ready; all that are by then."""
        ledger, done = self._ledger, self._executor.done
        ready = ledger.all[:0]

        def enough() -> bool:
            nonlocal ready
            ready = ledger.ready(done)
            return len(ready) >= low

        if not self._dispatcher.wait_for_results(low, timeout, enough):
            raise self._timeout_error(low, timeout)
        return ready

    def _wait_for_slots(
        self, slots: Slots, low: int | None, high: int | None, timeout: float | None
    ) -> NDArray[np.intp]:
        """Wait for these slots, whoever else is ready before them."""
        if low is not None or high is not None:
            raise OptionError("recv takes slots, or min_slots and max_slots, not both")
        ledger, done = self._ledger, self._executor.done
        chosen = np.sort(ledger.choose(slots))
        ledger.check_under_way(chosen)
        deadline = None if timeout is None else monotonic() + timeout
        self._caller_time.enter(idle=False)
        while True:
            # In this order: a slot done meanwhile is in neither, never in both.
            ready = len(ledger.ready(done))
            missing = ledger.missing(chosen, done)
            if not missing:
                return chosen
            left = None if deadline is None else deadline - monotonic()
            in_time = self._dispatcher.wait_for_results(
                ready + missing, left, lambda: not ledger.missing(chosen, done)
            )
            if not in_time:
                raise self._timeout_error(missing, timeout)

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

    def _timeout_error(self, count: int, timeout: float | None) -> TimeoutError:
        return TimeoutError(
            f"{count} results were not there after {timeout} s; "
            f"{self._ledger.waiting} slots have a command under way"
        )

    def _take_all(self, copy: bool) -> Step:
        """Every slot, all on the same row: what `step` does."""
        ledger = self._ledger
        ledger.take_all()
        try:
            return self._receiver.all_slots(
                self._dispatcher.letters(ledger.all), copy, self.debug
            )
        finally:
            self._caller_time.leave()

    def _take(self, slots: NDArray[np.intp], copy: bool) -> Step:
        """Some slots, or slots on different rows."""
        self._ledger.take(slots)
        try:
            letters = self._dispatcher.letters(slots)
            return self._receiver.some_slots(slots, letters, copy, self.debug)
        finally:
            self._caller_time.leave()

    def observe(self) -> Any:
        """The latest observation of every slot, copied."""
        self._lifecycle.check()
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
        return self.answers(self.ask_async(verb, slots, payload))

    def ask_async(
        self, verb: str, slots: Slots | None, payload: Callable[[list[int]], Any]
    ) -> Question:
        """Ask one question per worker that has any of the slots, and go on."""
        self._lifecycle.check()
        chosen = self._ledger.choose(slots).tolist()
        question = Question.about(chosen, self._executor.shards, verb, payload)
        self._dispatcher.ask(question)
        return question

    def answers(
        self, question: Question, timeout: float | None = None
    ) -> tuple[Any, ...]:
        """Wait for the answers to a question, in the order of its slots."""
        self._lifecycle.check()
        replies = self._dispatcher.answers(question, timeout)
        faults = [
            self._fault_details.of_exception(fault, question.question_to(fault.slot))
            for reply in replies.values()
            for fault in reply.faults
        ]
        if faults:
            error = one_error_for(faults)
            raise error from error.__cause__
        return question.answers(replies)

    # Checks ---------------------------------------------------------------------------

    def _check_sendable(self, slots: NDArray[np.intp]) -> None:
        self._ledger.check_idle(slots)
        if self._api.wants_reset:
            self._ledger.check_started(slots)
        self._expire_views(slots)

    def _expire_views(self, slots: NDArray[np.intp]) -> None:
        if self._stale_views.lent:
            self._stale_views.expire(slots, self._ledger.tickets(slots) + 1 & 1)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The latest faults that ended in a restart, oldest first."""
        return () if self._recovery is None else tuple(self._recovery.faults)

    @property
    def fault_count(self) -> int:
        """How many faults ended in a restart; `faults` has the latest of them."""
        return 0 if self._recovery is None else self._recovery.count

    def call_on_restart(self, hook: Callable[[Fault], None] | None) -> None:
        """Have every restart of an env or a worker told at once, not by `faults` alone.

        The hook is called from within `recv` and whatever else receives; it must not
        use the pool, but for `faults` and `fault_count`.
        """
        if self._recovery is not None:
            self._recovery.on_restart = hook

    @property
    def restarts_workers(self) -> bool:
        """Whether workers that died or hung are replaced."""
        return self._recovery is not None

    # Looking --------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Who was busy and what took how long, since the pool was opened."""
        self._lifecycle.check()
        idle = not self._ledger.waiting
        return stats_of(self._executor, self._caller_time, self._cpu_contention, idle)

    @property
    def shards(self) -> tuple[range, ...]:
        """The slots that each worker runs."""
        return tuple(self._executor.shards)

    @property
    def waiting(self) -> int:
        """How many slots have a command under way."""
        return self._ledger.waiting

    @property
    def send_count(self) -> int:
        """How often something was sent, to whichever slots."""
        return self._ledger.send_count

    @property
    def question_count(self) -> int:
        """How many questions were put to the envs."""
        return self._ledger.question_count

    @property
    def sample_task(self) -> Callable[[int, int, np.random.Generator], Any] | None:
        """What draws the tasks of episodes that were given none."""
        return self._options.sample_task

    @property
    def envs(self) -> list[Any]:
        """The environments themselves, where they are in this process (serial).

        `pool.envs[0] = Wrapper(pool.envs[0])` puts another one into a slot.
        """
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
        return self._lifecycle.state == CLOSED

    def close(self, timeout: float | None = None) -> None:
        """Close every env and end every worker; bounded, idempotent, never raises."""
        if self._lifecycle.has_workers:
            self._lifecycle.close()
            self._executor.close(timeout)

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
        if hasattr(self, "_lifecycle"):  # else the arguments were refused
            self.close()
