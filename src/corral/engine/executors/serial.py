"""Everything in the caller's thread: no workers to wait for, nothing to pickle.

Commands are kept until `wait` needs their results, so `recv(min_slots=k)` runs k of
them and the order of results is the order of sending. What was sent to all slots at
once is run at once, which is quicker, unless there is a deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from corral.core import EnvSpec
from corral.engine.executors.contract import Assignment, Executor, open_executors
from corral.engine.executors.starting import construction_fault, start_errors
from corral.engine.faults.report import error_for
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import (
    ControlViews,
    DataViews,
    is_later,
    plan_control,
    plan_data,
)
from corral.engine.transport.block import Block
from corral.engine.worker.commands import (
    MAIL_ENTRY,
    MORE_FOLLOWS_BIT,
    STEP_ALL_ENTRIES,
    VERB_SHIFT,
    Verb,
    as_one_command,
    entry,
)
from corral.engine.worker.context import here
from corral.engine.worker.letters import Letter, Reply, WorkerEndpoint, unpickled_copy
from corral.engine.worker.worker import Worker
from corral.errors import ClosedError, OptionError


class InlineExecutor(Executor):
    """One worker, which is the caller; its slots are counted from 0."""

    inline = True
    # Whether a command to all slots may be in the queue.
    _has_batch = False
    # Whether Ctrl-C has come in the middle of a command.
    _interrupted = False
    # The number of the latest question, until it is answered.
    _asked = 0

    def __init__(
        self, assignment: Assignment, worker: Worker, control: ControlViews
    ) -> None:
        self.shards = [range(assignment.slots)]
        self.shared = assignment.shared
        self.control = control
        self.on_return = lambda worker: None
        self._assignment, self._worker = assignment, worker
        self._queue: deque[int] = deque()
        self._messages: deque[Any] = deque()
        self._letters: list[Letter] = []
        self._answers: dict[int, Reply] = {}
        self._finished = self._informed = 0
        self._closed = False
        # Whether the caller is inside an env right now.
        self._running = False
        # By verb: how many slots are done when the command is.
        self._slots = assignment.slots
        self._results_of = (0, 1, self._slots, 1, 0)
        self._informed_words = control.informed.data

    @property
    def envs(self) -> EnvList:
        """The environments themselves; assigning one replaces the env of its slot."""
        envs = self._worker.shard.envs
        return EnvList([adapter.env for adapter in envs.adapters], envs.exchange)

    def _keep(self, message: Letter | Reply) -> None:
        assert isinstance(message, Letter), "serial answers are returned, not posted"
        self._letters.append(unpickled_copy(message))

    def send_all(self, mode: int) -> None:
        """Keep the command until its results are waited for."""
        self._queue.append(STEP_ALL_ENTRIES[mode])
        self._has_batch = True

    def send(self, slots: NDArray[np.intp], verb: Verb, mode: int) -> None:
        """Keep the commands until their results are waited for."""
        entries = [entry(verb, mode, slot) for slot in slots.tolist()]
        batched = self._assignment.options.batched
        self._queue.extend(as_one_command(entries) if batched else entries)

    def post(self, messages: Sequence[tuple[int, Any]]) -> None:
        """Keep the messages in their places among the commands."""
        self._messages.extend(message for _, message in messages)
        self._queue.extend([MAIL_ENTRY] * len(messages))

    def wait(
        self,
        target: int,
        timeout: float | None,
        is_done: Callable[[], bool],
        only_some: bool = False,
    ) -> bool:
        """Run commands until enough slots are done."""
        if only_some and timeout is not None and self._has_batch:
            self._split_batch()
        outside = here.context
        try:
            self._enter()
            while is_later(target, self._finished):
                self._run_next()
            # The slots that the caller waits for may have been sent after others, and
            # after Ctrl-C fewer results were received than there were.
            while not is_done():
                self._run_next()
        finally:
            here.context, self._running = outside, False
            self._leave()
        return True

    def _split_batch(self) -> None:
        """Have each slot stepped by itself: after a deadline the next is not begun."""
        self._has_batch = False
        queue, self._queue = self._queue, deque()
        for command in queue:
            if command in STEP_ALL_ENTRIES and not self._assignment.options.batched:
                mode = STEP_ALL_ENTRIES.index(command)
                slots = range(self._slots)
                self._queue.extend(entry(Verb.STEP, mode, slot) for slot in slots)
            else:
                self._queue.append(command)

    def run_in_worker(self, work: Callable[[Worker], None]) -> None:
        """Call a function as code of the worker."""
        outside = here.context
        try:
            here.context = self._worker.context
            work(self._worker)
        finally:
            here.context = outside

    def mark(self, command: int) -> None:
        """Let the parent see what a site beside the envs does, from now on."""
        self._worker.mark(command)

    def _enter(self) -> None:
        """The envs' code is run from here on."""

    def _leave(self) -> None:
        """The envs' code has returned."""

    def _run_next(self) -> None:
        if self._interrupted or not self._queue:
            raise ClosedError(
                "Ctrl-C interrupted an environment, and its result is lost; close this "
                "pool and make a new one"
            )
        command = MORE_FOLLOWS_BIT
        while command & MORE_FOLLOWS_BIT:
            try:
                command = self._queue.popleft()
                self._worker.handle(command)
            except BaseException:  # its message may be unread, for the next command
                self._interrupted = True
                raise
            self._finished += self._results_of[command >> VERB_SHIFT]
        if self._closed:
            self._raise_ended()

    def _raise_ended(self) -> NoReturn:
        """A signal handler has closed the pool in the middle of a command."""
        for letter in self._letters:
            error = letter.fault and letter.fault.exception
            if isinstance(error, SystemExit):
                raise error  # the handler's own, which came through the env
        raise ClosedError("this pool was closed while it was waiting")

    def ask(self, questions: Mapping[int, Any]) -> None:
        """Run what is waiting, then answer."""
        self._answers = {}
        outside = here.context
        try:
            self._enter()
            while self._queue:
                self._run_next()
            for worker, question in questions.items():
                self._asked = question.number
                self._answers[worker] = self._worker.answer(question)
        finally:
            here.context, self._running = outside, False
            self._leave()

    def is_asked(self, worker: int, number: int) -> bool:
        """Whether this is the latest question."""
        return self._asked == number

    def answers(self, *_: Any, **__: Any) -> dict[int, Reply]:
        """Return all answers, and forget them."""
        answers, self._answers, self._asked = self._answers, {}, 0
        return answers

    def first_answers(
        self, workers: Collection[int], enough: Callable[[], bool]
    ) -> dict[int, Reply]:
        """Return these workers' answers at once: every worker has answered."""
        return self.answered(workers)

    def answered(self, workers: Collection[int]) -> dict[int, Reply]:
        """Return these workers' answers."""
        return {one: said for one, said in self._answers.items() if one in workers}

    def forget_answer(self, worker: int) -> None:
        """Forget an answer that was taken."""
        self._answers.pop(worker, None)

    def arrivals(self) -> tuple[list[Letter], bool]:
        """What the shard wrote beside the block."""
        before, self._informed = self._informed, self._informed_words[0]
        return self._letters, self._informed != before


class SerialExecutor(InlineExecutor):
    """The caller builds the envs, runs them and closes them."""

    def __init__(self, assignment: Assignment) -> None:
        plan = plan_control(assignment.slots, 1, assignment.slots)
        self._block = Block.create(plan.size, shared=False)
        self._data: Block | None = None
        worker = Worker(assignment.job(0, range(assignment.slots)))
        super().__init__(assignment, worker, ControlViews(plan, self._block.memory))
        open_executors.add(self)

    def build(self) -> list[EnvSpec]:
        """Build every env here."""
        outside = here.context
        try:
            self._enter()
            return self._worker.build()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise error_for(construction_fault(error, self._worker.job)) from error
        finally:
            # Plain statements: Ctrl-C may come when a call begins.
            here.context, self._running = outside, False
            self._leave()

    def bind(self, codecs: Codecs) -> DataViews:
        """Lay out private memory the way a shared block would be."""
        plan = plan_data(self._assignment.slots, codecs.obs, codecs.action, start=0)
        with start_errors(self._assignment.seed):
            self._data = Block.create(plan.size, shared=False, touched=plan.touched)
        views = DataViews(plan, self._data.memory)
        endpoint = WorkerEndpoint(
            index=0, control=self.control, fetch=self._messages.popleft, post=self._keep
        )
        self._worker.bind(views, codecs, endpoint)
        return views

    def step_inline(self, mode: int) -> None:
        """Step every slot right now: `send_all` and `wait` in one."""
        # `_enter`, without the call.
        outside, here.context = here.context, self._worker.context
        self._running = True
        try:
            while self._queue:
                self._run_next()
            self._worker.shard.step_all(mode)
            self._finished += self._slots
            if self._closed:
                self._raise_ended()
        finally:
            here.context, self._running = outside, False
            if self._closed:  # `_leave`, without the call
                self._end()

    def _enter(self) -> None:
        """Be the worker from here on; the caller's thread may be another pool's."""
        here.context, self._running = self._worker.context, True

    def _leave(self) -> None:
        """Do what had to wait for the env's code to return."""
        if self._closed:
            self._end()

    def close(self, timeout: float | None) -> None:
        """Close every env: now, or when the one that runs right now has returned."""
        before, self._closed = self._closed, True
        if not before and not self._running:
            self._end()

    def _end(self) -> None:
        self._queue.clear()
        outside = here.context
        try:
            here.context = self._worker.context
            with suppress(Exception):
                self._worker.shard.close()
        finally:
            here.context = outside
        for block in (self._block, self._data):
            if block is not None:
                block.close()


class EnvList(list[Any]):
    """One env per slot: `envs[0] = Wrapper(envs[0])` puts the wrapper into slot 0.

    The number of slots is fixed, so nothing can be added or removed.

    >>> slots = ["a", "b"]
    >>> envs = EnvList(slots, slots.__setitem__)
    >>> envs[-1] = "c"
    >>> envs, slots
    (['a', 'c'], ['a', 'c'])

    Args:
        envs: the present envs.
        exchange: called with a slot and its new env.
    """

    def __init__(
        self, envs: Iterable[Any], exchange: Callable[[int, Any], None]
    ) -> None:
        super().__init__(envs)
        self._exchange = exchange

    def __setitem__(self, at: Any, env: Any) -> None:
        chosen = range(len(self))[at]
        many = isinstance(at, slice)
        slots, envs = (chosen, list(env)) if many else ([chosen], [env])
        if len(envs) != len(slots):
            self._refuse()
        for slot, one in zip(slots, envs, strict=True):
            self._exchange(slot, one)
            super().__setitem__(slot, one)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise OptionError(
            f"this list has one env for each of {len(self)} slots, and its length is "
            "fixed; envs[slot] = env replaces an env"
        )

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __delitem__ = __iadd__ = __imul__ = _refuse

    def __reduce_ex__(self, _: Any) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy is a plain list
