"""The parent's side of workers that sleep: queues, bells and mailboxes.

    send   queue entry -> ring the worker's bell
    wait   for the parent's bell, in slices; check the workers between them

Shared by threads and processes, which differ only in how a worker is started, watched
and ended.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.executors.contract import Assignment, Executor, Vitals
from corral.engine.executors.openmp import HelperThreads
from corral.engine.executors.spawn import Replacement
from corral.engine.faults.report import error_for
from corral.engine.layout.plan import (
    BUSY_SECONDS,
    RETIREMENT_STAGE,
    TICKET_MASK,
    ControlViews,
)
from corral.engine.transport.doorbell import Doorbell
from corral.engine.transport.mailbox import MailboxClosed, deadline_after
from corral.engine.worker.commands import (
    ENTRIES,
    MAIL_ENTRY,
    STEP_ALL_ENTRIES,
    Ask,
    Verb,
    as_one_command,
)
from corral.engine.worker.letters import Letter, Reply, SealedMessage
from corral.errors import ClosedError, Fault, FaultError, OptionError

HEALTH_CHECK_SECONDS = 0.02
"""Seconds between looks at the workers while waiting for them."""
BUSY_HEALTH_CHECK_SECONDS = 0.001
"""The same while they post letters too big for their mailbox."""
WORKER_SPIN_SECONDS = 50e-6
"""Longest time that a worker spins before it sleeps: about the cost of a wake-up."""
PARENT_SPIN_SECONDS = 400e-6
"""The same for the parent, which spins only where it has a core for itself."""


class SignalledExecutor(Executor):
    """What threads and processes have in common, on the parent's side."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._inbox: list[Letter] = []
        self._replies: dict[int, Reply] = {}
        self._lost: dict[int, Fault] = {}
        """By worker: the fault of those that ended by themselves."""
        self._away: dict[int, Replacement] = {}
        """Workers that are being replaced."""
        self._closed = False
        self._interrupted = False
        """Whether something may have been sent in part."""
        self._helpers: HelperThreads | None = None
        """The caller's idle threads, which leave the cores to worker processes."""
        self._bell: Doorbell
        """The parent's."""
        self._bells: list[Doorbell] = []
        self._mailboxes: list[Any] = []
        self._assign(assignment.shards)

    def _assign(self, shards: list[range]) -> None:
        """Set the shards; nothing may have been sent yet."""
        self.shards = shards
        assignment = self._assignment
        workers = len(shards)
        # Spinning takes a core: workers spin while there is a core for each, the parent
        # only if one is left for it. Measured with 64 CartPoles on 16 cores and 15
        # workers: 394k steps/s without spinning, workers spin 457k, both 553k.
        self._worker_spin = WORKER_SPIN_SECONDS if workers <= assignment.cores else 0.0
        self._spin = PARENT_SPIN_SECONDS if workers + 1 <= assignment.cores else 0.0
        self._sent = [0] * workers
        self._fetched = [0] * workers
        self._unwanted = [0] * workers
        """By worker: answers that were given up and will be dropped."""
        self._places = [
            (worker, index)
            for worker, shard in enumerate(shards)
            for index in range(len(shard))
        ]

    def _open_control(self, control: ControlViews) -> None:
        super()._open_control(control)
        self._consumed = [words.data for words in control.consumed]
        self._queues = [queue.data for queue in control.queue]
        self._posted = control.posted.data
        self._posted_seen = bytes(self._posted)
        self._informed_words = control.informed.data
        self._informed_seen = bytes(self._informed_words)

    def _open_channels(self) -> None:
        """The present workers; the control part may have room for more."""
        workers = range(len(self.shards))
        channels = zip(workers, self._queues, self._bells, strict=False)
        self._channels = [one for one in channels if one[0] not in self._away]

    # Sending --------------------------------------------------------------------------

    def send_all(self, mode: int) -> None:
        """One entry per worker; those that spin start before any sleeper is woken."""
        command, sent = STEP_ALL_ENTRIES[mode], self._sent
        if self._helpers is not None and "torch._C" in sys.modules:
            self._helpers.before_batch()
        try:
            for worker, queue, bell in self._channels:
                # There is room: mail leaves one entry, and no slot is pending.
                position = sent[worker]
                queue[position % len(queue)] = command
                sent[worker] = position + 1 & TICKET_MASK
                bell.announce()
            for _, _, bell in self._channels:
                bell.flush()
        except BaseException:
            self._interrupted = True
            raise

    def send(self, slots: NDArray[np.intp], verb: Verb, mode: int) -> None:
        """One entry per slot, one wake-up per worker, after all are announced."""
        command, places = ENTRIES[verb][mode], self._places
        by_worker: dict[int, list[int]] = {}
        for slot in slots.tolist():
            worker, index = places[slot]
            by_worker.setdefault(worker, []).append(command | index)
        rung = [worker for worker in by_worker if worker not in self._away]
        try:
            for worker in rung:
                self._announce(worker, by_worker[worker])
            for worker in rung:
                self._bells[worker].flush()
        except BaseException:
            self._interrupted = True
            raise

    def _announce(self, worker: int, entries: list[int]) -> None:
        """Queue commands to one worker, which starts with the first if it spins."""
        if self._assignment.options.batched:
            entries = as_one_command(entries)
        queue, bell, sent = self._queues[worker], self._bells[worker], self._sent
        consumed = self._consumed[worker]
        for one in entries:
            position = sent[worker]
            if position - consumed[0] & TICKET_MASK >= len(queue) - 1:
                self._wait_for_room(worker)
            queue[position % len(queue)] = one
            sent[worker] = position + 1 & TICKET_MASK
            bell.announce()

    def post(self, worker: int, message: Any) -> None:
        """Announce a message, then post it.

        In this order, since a message that is bigger than the mailbox can only be
        posted while the worker reads it.
        """
        self._post_packed(worker, self._pack(message))

    def post_each(self, messages: Sequence[tuple[int, Any]]) -> None:
        """Post messages about slots; none of them if one cannot be packed."""
        packed = []
        for worker, message in messages:
            slot = self.shards[worker].start + message.index
            packed.append(self._pack_or_refuse(message, f"for slot {slot}"))
        for (worker, _), message in zip(messages, packed, strict=True):
            self._post_packed(worker, message)

    def _pack_or_refuse(self, message: Any, what: str) -> Any:
        try:
            return self._pack(message)
        except Exception as error:
            raise OptionError(
                f"what was given {what} cannot be sent to a worker: "
                f"{type(error).__name__}: {error!s:.2000}"
            ) from error

    def _post_packed(self, worker: int, packed: Any) -> None:
        if worker in self._lost:
            raise error_for(self._lost[worker])
        if worker in self._away:
            return  # `on_return` sends it again
        try:
            self._announce(worker, [MAIL_ENTRY])
            self._bells[worker].flush()
            self._post(worker, packed)
        except FaultError:
            raise  # the worker ended, and the message with it
        except BaseException:
            self._interrupted = True
            raise

    @staticmethod
    def _pack(value: Any) -> Any:
        """The message as it travels; raises before anything was announced."""
        return value

    def _post(self, worker: int, packed: Any) -> None:
        """Post a message, and check the worker meanwhile: it may hang."""
        mailbox = self._mailboxes[worker]
        try:
            mailbox.put(packed)
            while not mailbox.flush(HEALTH_CHECK_SECONDS):
                self._raise_if_dead(worker)
        except MailboxClosed:
            self._await_death(worker)
            raise

    def _wait_for_room(self, worker: int) -> None:
        """Only mail can fill a queue, and only of a worker that is busy for long."""
        while not self._has_room(worker):
            self._bells[worker].flush()
            self._raise_if_dead(worker)
            self._collect()
            time.sleep(0.001)

    def _has_room(self, worker: int) -> bool:
        consumed: int = self._consumed[worker][0]
        pending = self._sent[worker] - consumed & TICKET_MASK
        return pending < len(self._queues[worker]) - 1  # the last is send_all's

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
            rung = bell.wait(target, seconds, spin)
            if is_done():
                break
            self.check_workers()
            if rung:  # more rings than results: wait for the next
                target = bell.count + 1 & TICKET_MASK
                if is_done():  # after counting, so that what comes later rings later
                    break
            piece = BUSY_HEALTH_CHECK_SECONDS if self._collect() else piece
            if left <= 0:
                return False
        if self._helpers is not None and self._helpers.timed:
            self._helpers.after_batch()
        return True

    def arrivals(self) -> tuple[Sequence[Letter], bool]:
        """What the workers have written beside the block."""
        if bytes(self._posted) != self._posted_seen:
            self._collect()
        letters, self._inbox = self._inbox, []
        words = bytes(self._informed_words)
        informed = words != self._informed_seen
        self._informed_seen = words
        return letters, informed

    def _collect(self) -> bool:
        """Fetch as many messages as the workers have announced; False if none."""
        posted = bytes(self._posted)
        if posted == self._posted_seen:
            return False
        self._posted_seen = posted
        for worker, count in enumerate(self._posted[: len(self.shards)]):
            if worker in self._away:
                continue
            while count - self._fetched[worker] & TICKET_MASK in range(1, 1 << 31):
                self._sort(worker, self._fetch(worker, None))
        return True

    def ask(self, questions: dict[int, Ask]) -> None:
        """Post every question before waiting for any answer."""
        # Pickle all before posting one: if a later one could not be pickled, the answer
        # to an earlier one would be taken for the next question's.
        packed = {
            worker: self._pack_or_refuse(asked, f"with a {asked.verb!r} question")
            for worker, asked in questions.items()
        }
        while not self._away.keys().isdisjoint(questions):
            time.sleep(0.001)
            self.check_workers()
        asked_workers: list[int] = []
        try:
            for worker, question in packed.items():
                self._post_packed(worker, question)
                asked_workers.append(worker)
        except BaseException:
            for worker in asked_workers:
                self._unwanted[worker] += 1
            raise

    def answers(
        self, workers: Iterable[int], timeout: float | None
    ) -> dict[int, Reply]:
        """Wait for the answers; letters that arrive meanwhile are kept."""
        deadline = deadline_after(timeout)
        try:
            for worker in workers:
                while worker not in self._replies:
                    left = deadline - time.monotonic()
                    self._sort(worker, self._fetch(worker, left))
        except BaseException:  # Ctrl-C too: the next question must not get these
            for worker in workers:
                if self._replies.pop(worker, None) is None:
                    self._unwanted[worker] += 1
            raise
        return {worker: self._replies.pop(worker) for worker in workers}

    def first_answers(self, enough: Callable[[], bool]) -> dict[int, Reply]:
        """Wait until an item was run, or it is `enough`; the answers so far."""
        while True:
            # Answers decide, and rings only wake the parent: some may be lost.
            rings = self._bell.count
            self._collect()
            # Every time: workers that answer quickly must not hide one that died.
            self.check_workers()
            if self._replies or enough():
                return self.answered()
            self._bell.wait(rings + 1 & TICKET_MASK, HEALTH_CHECK_SECONDS, self._spin)

    def answered(self) -> dict[int, Reply]:
        """The answers that are here."""
        answered, self._replies = self._replies, {}
        return answered

    def _fetch(self, worker: int, timeout: float | None) -> object:
        """One message; checks the worker meanwhile."""
        deadline = deadline_after(timeout)
        while True:
            left = deadline - time.monotonic()
            seconds = max(0.0, min(HEALTH_CHECK_SECONDS, left))
            try:
                return self._mailboxes[worker].fetch(seconds)
            except TimeoutError:
                self._raise_if_dead(worker)
                if left <= 0:
                    raise
            except MailboxClosed:
                self._await_death(worker)
                raise

    def _sort(self, worker: int, message: object) -> None:
        self._fetched[worker] = self._fetched[worker] + 1 & TICKET_MASK
        if isinstance(message, SealedMessage):
            message = message.open(worker)
        if isinstance(message, Reply):
            if self._unwanted[worker]:
                self._unwanted[worker] -= 1
            else:
                self._replies[worker] = message
        else:
            assert isinstance(message, Letter)
            self._inbox.append(message)

    def vitals(self) -> list[Vitals]:
        """The process of each worker, and how long it has been busy."""
        busy = self._control.vitals[:, BUSY_SECONDS].tolist()
        return [
            Vitals(self._pid(worker), busy[worker])
            for worker in range(len(self.shards))
        ]

    def _pid(self, worker: int) -> int:
        return os.getpid()

    # Health ---------------------------------------------------------------------------

    def _fault_if_dead(self, worker: int) -> Fault | None:
        """The fault of a worker that is no longer there."""
        return None

    def _await_death(self, worker: int) -> None:
        """The worker's mailbox is closed, so it is ending: wait for its exit code."""
        deadline = time.monotonic() + 2.0
        while time.monotonic() < deadline:
            self._raise_if_dead(worker)
            time.sleep(0.001)

    def _raise_if_dead(self, worker: int) -> None:
        if self._closed:
            raise ClosedError("this pool was closed while it was waiting")
        fault = self._lost.get(worker) or self._fault_if_dead(worker)
        if fault is None and self._interrupted:
            raise ClosedError(
                "Ctrl-C interrupted this pool while it was sending, so the results "
                "that it waits for will not come; close it and make a new one"
            )
        if fault is not None:
            self._lost[worker] = fault
            raise error_for(fault)

    def check_workers(self) -> None:
        """Raise if a worker has died or is late; install replacements."""
        for worker in range(len(self.shards)):
            if worker in self._away:
                self._install_replacement(worker)
            else:
                self._raise_if_dead(worker)

    def retirement_stage(self, worker: int) -> int:
        """Whether a worker that ended made room for another, and at which stage."""
        return int(self._control.vitals[worker, RETIREMENT_STAGE])

    def last_letters(self, worker: int) -> Sequence[Letter]:
        """What a worker that ended has left in its mailbox, and what others sent."""
        with suppress(TimeoutError, MailboxClosed):  # the rest was never sent
            while True:
                self._sort(worker, self._mailboxes[worker].fetch(0.0))
        letters, self._inbox = self._inbox, []
        return letters

    def _install_replacement(self, worker: int) -> None:
        """Install a replacement, if it is ready."""
