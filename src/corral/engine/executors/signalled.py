"""The parent's side of workers that sleep: queues, bells and mailboxes.

    send   queue entry -> ring the worker's bell
    wait   for the parent's bell, in slices; check the workers between them

Shared by threads and processes, which differ only in how a worker is started, watched
and ended.
"""

from __future__ import annotations

import math
import sys
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import NO_TASK
from corral.engine.executors.contract import Assignment, Executor, open_executors
from corral.engine.executors.openmp import HelperThreads
from corral.engine.executors.spawn import Replacement
from corral.engine.executors.starting import start_errors, uninterrupted
from corral.engine.executors.worker_link import WorkerLink
from corral.engine.faults.report import error_for
from corral.engine.layout.plan import (
    CLOSE_ASKED,
    HALF_RANGE,
    WORD_MASK,
    ControlPlan,
    ControlViews,
    is_later,
)
from corral.engine.transport import doorbell
from corral.engine.transport.block import Block
from corral.engine.transport.mailbox import (
    MailboxClosed,
    MailboxTimeout,
    deadline_after,
)
from corral.engine.worker.commands import (
    ENTRIES,
    MAIL_ENTRY,
    STEP_ALL_ENTRIES,
    Ask,
    PickledAsk,
    Verb,
    as_one_command,
)
from corral.engine.worker.letters import Letter, Reply, SealedMessage
from corral.errors import ClosedError, Fault, FaultError, OptionError

# Seconds between looks at the workers while waiting for them.
HEALTH_CHECK_SECONDS = 0.02
# The same while they post letters too big for their mailbox.
BUSY_HEALTH_CHECK_SECONDS = 0.001
# Longest time that a worker spins before it sleeps: about the cost of a wake-up.
WORKER_SPIN_SECONDS = 50e-6
# The same for the parent, which spins only where it has a core for itself.
PARENT_SPIN_SECONDS = 400e-6
CLOSED_MEANWHILE = "this pool or crew was closed while it was waiting"
INTERRUPTED = (
    "Ctrl-C interrupted this pool or crew while it was sending, so the results that it "
    "waits for will not come; close it and make a new one"
)


class SignalledExecutor(Executor):
    """What threads and processes have in common, on the parent's side."""

    def __init__(self, assignment: Assignment, plan: ControlPlan) -> None:
        self._assignment = assignment
        self.shared = assignment.shared
        self._links: list[WorkerLink] = []
        # Those that serve, less those that are being replaced.
        self._present: list[WorkerLink] = []
        # Workers that are being replaced.
        self._away: dict[int, Replacement] = {}
        self._inbox: list[Letter] = []
        # By worker: the answer to its latest question, until it is taken.
        self._replies: dict[int, Reply] = {}
        self._bound = self._closed = False
        # When `first_answers` last checked the workers, by time.monotonic.
        self._checked_at = 0.0
        # Whether something may have been sent in part.
        self._interrupted = False
        # The caller's idle threads, which leave the cores to worker processes.
        self._helpers: HelperThreads | None = None
        self._assign(assignment.shards)
        self._resources = ExitStack()
        try:
            with start_errors(assignment.seed):
                uninterrupted(lambda: self._open(plan))
        except BaseException:
            self._resources.close()
            raise
        open_executors.add(self)

    def __del__(self) -> None:
        # Ctrl-C may come before a pool owns the executor.
        if hasattr(self, "_resources"):
            self.close(0.0)

    def _assign(self, shards: list[range]) -> None:
        """Set the shards; nothing may have been sent yet."""
        self.shards = shards
        workers, cores = len(shards), self._assignment.cores
        # Spinning takes a core: workers spin while there is a core for each, the parent
        # only if one is left for it. Measured with 64 CartPoles on 16 cores and 15
        # workers: 394k steps/s without spinning, workers spin 457k, both 553k.
        self._worker_spin = WORKER_SPIN_SECONDS if workers <= cores else 0.0
        self._spin = PARENT_SPIN_SECONDS if workers + 1 <= cores else 0.0
        self._places = [
            (worker, index)
            for worker, shard in enumerate(shards)
            for index in range(len(shard))
        ]

    @abstractmethod
    def _open(self, plan: ControlPlan) -> None:
        """Open what is shared with the workers, as `_resources`."""

    def _open_control(self, plan: ControlPlan, shared: bool) -> Block:
        """Open the control part, and the parent's bell in it."""
        opened = self._resources.enter_context
        block = opened(closing(Block.create(plan.size, shared=shared)))
        self.control = control = ControlViews(plan, block.memory)
        self._bell = opened(closing(self._new_bell(None)))
        self._posted = control.posted.data
        self._posted_seen = bytes(self._posted)
        self._informed_words = control.informed.data
        self._informed_seen = bytes(self._informed_words)
        return block

    def _new_bell(self, worker: int | None) -> doorbell.Doorbell:
        offset = self.control.bell_offset(worker)
        return doorbell.create(self.control.memory, offset)

    def _find_present(self) -> None:
        """Note which workers can be sent commands."""
        self._present = [link for link in self._links if link.worker not in self._away]

    # Sending --------------------------------------------------------------------------

    def send_all(self, mode: int) -> None:
        """One entry per worker; those that spin start before any sleeper is woken."""
        command, present = STEP_ALL_ENTRIES[mode], self._present
        if self._helpers is not None and "torch._C" in sys.modules:
            self._helpers.before_batch()
        try:
            for link in present:
                # There is room: mail leaves one entry, and no slot is pending.
                link.queue[link.sent & link.last] = command
                link.sent = link.sent + 1 & WORD_MASK
                link.bell.announce()
            for link in present:
                link.bell.flush()
        except BaseException as error:
            self._interrupted = True
            self._raise_if_closed(error)
            raise

    def send(self, slots: NDArray[np.intp], verb: Verb, mode: int) -> None:
        """One entry per slot, one wake-up per worker, after all are announced."""
        command, places = ENTRIES[verb][mode], self._places
        by_worker: dict[int, list[int]] = {}
        for slot in slots.tolist():
            worker, index = places[slot]
            by_worker.setdefault(worker, []).append(command | index)
        rung = [self._links[worker] for worker in by_worker if worker not in self._away]
        try:
            for link in rung:
                self._announce(link, by_worker[link.worker])
            for link in rung:
                link.bell.flush()
        except BaseException as error:
            self._interrupted = True
            self._raise_if_closed(error)
            raise

    def _announce(self, link: WorkerLink, entries: list[int]) -> None:
        """Queue commands to one worker, which starts with the first if it spins."""
        if self._assignment.options.batched:
            entries = as_one_command(entries)
        # Only mail can fill a queue, and only of a worker that is busy for long. The
        # last entry is left to `send_all`.
        room = link.last - len(entries)
        while link.sent - link.consumed[0] & WORD_MASK > room:
            link.bell.flush()
            self._raise_if_dead(link)
            self._collect()
            time.sleep(0.001)
        for entry in entries:
            link.queue[link.sent & link.last] = entry
            link.sent = link.sent + 1 & WORD_MASK
            link.bell.announce()

    def post(self, messages: Sequence[tuple[int, Any]]) -> None:
        """Post each message; none of them if one cannot be packed."""
        packed = []
        for worker, message in messages:
            slot = self.shards[worker].start + getattr(message, "index", 0)
            packed.append(self._pack_or_refuse(message, f"for slot {slot}"))
        for (worker, _), message in zip(messages, packed, strict=True):
            self._post_packed(worker, message)

    def _pack_or_refuse(self, message: Any, what: str) -> Any:
        try:
            return self._pack(message)
        except Exception as error:
            task = getattr(message, "task", NO_TASK)
            about = "" if task is NO_TASK else f" (task {task!r:.80})"
            raise OptionError(
                f"what was given {what}{about} cannot be sent to a worker: "
                f"{type(error).__name__}: {error!s:.2000}"
            ) from error

    def _post_packed(self, worker: int, packed: Any) -> None:
        if worker in self._away:
            return  # `on_return` sends it again
        link = self._links[worker]
        if link.fault is not None:
            raise error_for(link.fault)
        if self._interrupted:  # it would read the message before in place of this one
            raise ClosedError(INTERRUPTED)
        try:
            # What the socket takes, before the bell: a worker that wakes up and finds
            # no message has to be woken up again. The rest can only be posted while
            # the worker reads.
            posted = self._flushed(link, 0.0, packed)
            self._announce(link, [MAIL_ENTRY])
            link.bell.flush()
            if not posted:
                self._post(link)
        except BaseException as error:
            # With a FaultError, the worker has ended, and the message with it.
            self._interrupted |= not isinstance(error, FaultError)
            self._raise_if_closed(error)
            raise

    @staticmethod
    def _pack(value: Any) -> Any:
        """The message as it travels; raises before anything was announced."""
        return value

    def _post(self, link: WorkerLink, packed: Any = None) -> None:
        """Post a message, or its rest, and check the worker meanwhile: it may hang."""
        while not self._flushed(link, HEALTH_CHECK_SECONDS, packed):
            packed = None
            self._raise_if_dead(link)

    def _flushed(self, link: WorkerLink, seconds: float, packed: Any = None) -> bool:
        """Post a message, or its rest; False if the worker did not read it in time."""
        try:
            if packed is not None:
                link.mailbox.put(packed)
            return bool(link.mailbox.flush(seconds))
        except MailboxClosed as error:
            closed = error
        self._await_death(link)
        raise closed

    # Receiving ------------------------------------------------------------------------

    def wait(
        self,
        target: int,
        timeout: float | None,
        is_done: Callable[[], bool],
        only_some: bool = False,
    ) -> bool:
        """Wait until what the caller waits for is there."""
        bell, spin = self._bell, self._spin
        # Only the event twin holds rings back, and it has a descriptor.
        piece = (
            BUSY_HEALTH_CHECK_SECONDS
            if only_some and bell.descriptor is not None
            else HEALTH_CHECK_SECONDS
        )
        deadline = left = math.inf
        if timeout is not None:  # `deadline_after`, without the call
            deadline = time.monotonic() + timeout
        while True:
            seconds = piece
            if timeout is not None:
                left = deadline - time.monotonic()
                seconds = max(0.0, min(piece, left))
            try:
                rung = bell.wait(target, seconds, spin)
            except ValueError as error:
                self._raise_if_closed(error)
                raise
            if is_done():
                break
            self.check_workers()
            if rung:  # more rings than results: wait for the next
                target = self.rings() + 1 & WORD_MASK
                if is_done():  # after counting, so that what comes later rings later
                    break
            else:
                spin = 0.0  # of a wait this long, the rest is slept
            piece = BUSY_HEALTH_CHECK_SECONDS if self._collect() else piece
            if left <= 0:
                return False
        if self._helpers is not None and self._helpers.timed:
            self._helpers.after_batch()
        return True

    def arrivals(self) -> tuple[list[Letter], bool]:
        """What the workers have written beside the block."""
        if bytes(self._posted) != self._posted_seen:
            self._collect()
        words = bytes(self._informed_words)
        informed = words != self._informed_seen
        self._informed_seen = words
        return self._inbox, informed

    def rings(self) -> int:
        """How often the parent's bell has rung."""
        try:
            return self._bell.count
        except ValueError as error:
            self._raise_if_closed(error)
            raise

    def _collect(self) -> bool:
        """Fetch as many messages as the workers have announced; False if none."""
        posted = bytes(self._posted)
        if posted == self._posted_seen:
            return False
        for link in self._present:
            count = self._posted[link.worker]
            while is_later(count, link.fetched):
                self._sort_next(link, None)
        self._posted_seen = posted  # last: Ctrl-C may come before
        return True

    def ask(self, questions: Mapping[int, Ask | PickledAsk]) -> None:
        """Post every question before waiting for any answer."""
        for _ in self.each_asked(questions):
            pass

    def each_asked(self, questions: Mapping[int, Ask | PickledAsk]) -> Iterator[int]:
        """Post the questions in turn; a worker that is being replaced is waited for."""
        # Pickle all before posting one: where one cannot be pickled, none is asked.
        packed = {
            worker: asked.data
            if isinstance(asked, PickledAsk)
            else self._pack_or_refuse(asked, f"with a {asked.verb!r} question")
            for worker, asked in questions.items()
        }
        if self._helpers is not None and "torch._C" in sys.modules:
            self._helpers.before_batch()
        # Where each core has a worker, the caller is on the core of one of them. That
        # one is woken last, when the caller is about to sleep: otherwise the last one
        # finds no free core, and is queued behind another worker for milliseconds.
        for worker in sorted(packed, key=lambda one: self._links[one].bell.sleeps_here):
            while worker in self._away:
                time.sleep(0.001)
                self.check_workers()
            self._replies.pop(worker, None)
            # From here on, a late answer to another question is dropped.
            self._links[worker].question = questions[worker].number
            self._post_packed(worker, packed[worker])
            yield worker

    def is_asked(self, worker: int, number: int) -> bool:
        """Whether this is the question that a worker's answer is waited for."""
        return self._links[worker].question == number

    def answers(
        self, workers: Collection[int], timeout: float | None
    ) -> dict[int, Reply] | None:
        """Wait for the answers; letters that arrive meanwhile are kept."""
        deadline = deadline_after(timeout)
        for worker in workers:
            while worker not in self._replies:
                try:
                    self._sort_next(self._links[worker], deadline - time.monotonic())
                except MailboxTimeout:
                    return None
        for worker in workers:
            self._links[worker].question = 0
        return {worker: self._replies.pop(worker) for worker in workers}

    def is_busy(self, worker: int) -> bool:
        """Whether a worker has entries left in its queue."""
        link = self._links[worker]
        return bool(link.sent != link.consumed[0])

    def give_up(self, worker: int) -> None:
        """Drop the answer of a worker; it runs its next item after this one."""
        self._links[worker].question = 0

    def first_answers(
        self, workers: Collection[int], enough: Callable[[], bool]
    ) -> dict[int, Reply]:
        """Wait until one of the workers has answered, or it is `enough`."""
        while True:
            if self._closed:  # by a signal handler, or by what makes the items of a map
                raise ClosedError(CLOSED_MEANWHILE)
            # Answers decide, and rings only wake the parent: some may be lost.
            rings = self.rings()
            self._collect()
            # Workers that answer quickly must not hide one that died.
            now = time.monotonic()
            if now - self._checked_at > HEALTH_CHECK_SECONDS:
                self.check_workers()
                self._checked_at = now
            answers = self.answered(workers)
            if answers or enough():
                if self._helpers is not None and self._helpers.timed:
                    self._helpers.after_batch()
                return answers
            try:
                self._bell.wait(rings + 1 & WORD_MASK, HEALTH_CHECK_SECONDS, self._spin)
            except ValueError as error:
                self._raise_if_closed(error)
                raise

    def answered(self, workers: Collection[int]) -> dict[int, Reply]:
        """The answers that are here."""
        return {one: said for one, said in self._replies.items() if one in workers}

    def forget_answer(self, worker: int) -> None:
        """Forget an answer that was taken."""
        self._replies.pop(worker, None)

    @property
    def present(self) -> list[int]:
        """The workers that are not being replaced."""
        return [link.worker for link in self._present]

    def _fetch(self, link: WorkerLink, timeout: float | None) -> Any:
        """One message, before the worker serves."""
        return self._read(link, link.mailbox.fetch, timeout)

    def _read(
        self, link: WorkerLink, read: Callable[[float], Any], timeout: float | None
    ) -> Any:
        """One message; checks the worker meanwhile."""
        deadline = deadline_after(timeout)
        while True:
            left = deadline - time.monotonic()
            seconds = max(0.0, min(HEALTH_CHECK_SECONDS, left))
            # Nothing waits inside `except`: Ctrl-C there would print two tracebacks.
            missing: MailboxTimeout | MailboxClosed
            try:
                return read(seconds)
            except (MailboxTimeout, MailboxClosed) as error:
                missing = error
            if isinstance(missing, MailboxClosed):
                self._await_death(link)
                raise missing
            self._raise_if_dead(link)
            if left <= 0:
                raise missing

    def _sort_next(self, link: WorkerLink, timeout: float | None) -> None:
        """Wait for one message, and put it where it belongs."""
        self._sort(link, self._read(link, link.mailbox.first, timeout))

    def _sort(self, link: WorkerLink, message: Any) -> None:
        """Put the first message of a mailbox where it belongs."""
        if isinstance(message, SealedMessage):
            message = message.open(link.worker)
        letters: list[Letter] = []
        replies: dict[int, Reply] = {}
        if isinstance(message, Letter):
            letters.append(message)
        elif message.number == link.question:
            replies[link.worker] = message
        # Plain statements from here on, without a branch: Ctrl-C comes before or after
        # all of them, so a message is counted, kept and deleted once.
        link.fetched = link.fetched + 1 & WORD_MASK
        self._inbox += letters
        self._replies |= replies
        del link.mailbox.inbox[0]

    def last_letters(self, worker: int) -> Sequence[Letter]:
        """What a worker that ended has left in its mailbox, and what others sent."""
        link = self._links[worker]
        with suppress(MailboxTimeout, MailboxClosed):  # the rest was never sent
            while True:
                self._sort(link, link.mailbox.first(0.0))
        letters, self._inbox = self._inbox, []
        return letters

    # Health ---------------------------------------------------------------------------

    @abstractmethod
    def _fault_if_dead(self, link: WorkerLink) -> Fault | None:
        """The fault of a worker that is no longer there."""

    def _await_death(self, link: WorkerLink) -> None:
        """The worker's mailbox is closed, so it is ending: wait for its exit code."""
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            self._raise_if_dead(link)
            time.sleep(0.001)

    def _raise_if_dead(self, link: WorkerLink) -> None:
        if self._closed:
            raise ClosedError(CLOSED_MEANWHILE)
        link.fault = link.fault or self._fault_if_dead(link)
        if self._closed:  # a signal handler did so meanwhile, and workers ended
            raise ClosedError(CLOSED_MEANWHILE)
        if link.fault is not None:
            raise error_for(link.fault)
        if self._interrupted:
            raise ClosedError(INTERRUPTED)

    def _raise_if_closed(self, error: BaseException) -> None:
        """Raise a ClosedError in place of what a bell raises that was just closed.

        A signal handler may close the pool or crew at any moment.
        """
        if self._closed and isinstance(error, ValueError):
            raise ClosedError(CLOSED_MEANWHILE) from error

    def check_workers(self) -> None:
        """Raise if a worker has died or is late; install replacements."""
        for link in self._links:
            if link.worker in self._away:
                self._install_replacement(link.worker)
            else:
                self._raise_if_dead(link)

    def _install_replacement(self, worker: int) -> None:
        """Install a replacement, if it is ready."""

    # Ending ---------------------------------------------------------------------------

    def _ask_to_close(self, link: WorkerLink) -> bool:
        """Ask a worker to close its envs; whether it will read that in its queue."""
        # For a worker whose queue is full, or that is not looking at it yet.
        self.control.stop[link.worker, 0] = CLOSE_ASKED
        full = link.sent - link.consumed[0] & WORD_MASK >= link.last
        if not self._bound or full:
            return False
        with suppress(Exception):
            link.mailbox.post(Ask("close"), timeout=0.0)
        self._announce(link, [MAIL_ENTRY])
        link.bell.flush()
        return True


def ring_for_lost_rings(bell: doorbell.Doorbell, done: NDArray[np.uint32]) -> None:
    """Ring for results whose worker was killed between `done` and its ring.

    Other workers may be between the two right now; they get a moment. The caller checks
    `done` anyway, so one ring too many does no harm.
    """
    missing = WORD_MASK
    for _ in range(20):
        finished = int(done.sum(dtype=np.uint64))
        missing = min(missing, finished - bell.count & WORD_MASK)
        if not missing:
            return
    if missing < HALF_RANGE:
        bell.ring(missing)
        bell.flush()
