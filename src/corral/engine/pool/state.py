"""The state of a pool: what each slot was sent, what is pending, where time went.

    unbuilt -> open <-> sending -> closed
                    <-> acting (sites in the workers step the envs)

A pool is broken once a worker has ended that is not replaced, and forked in a child of
the process that made it.

Sending, receiving and recovery use it; nothing else records what was sent and what is
pending. What is known slot by slot is in arrays of fixed layout, except what only
Python objects can hold: seeds, options and tasks that were asked for. What is known of
the whole pool is in attributes: a Python number in an array costs twice as much.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from corral.engine.executors.contract import Executor
from corral.engine.layout.plan import WORD_MASK, Tickets, is_later
from corral.engine.worker.commands import WIDE_ACTIONS, Verb
from corral.errors import (
    ClosedError,
    CorralError,
    OptionError,
    OrderError,
    OwnershipError,
)

Self = TypeVar("Self", bound="WorkersOwner")

UNBUILT, OPEN, SENDING, CLOSED = "unbuilt", "open", "sending", "closed"
ACTING = "acting"
BROKEN, FORKED = "broken", "forked"
# The states in which this process has workers to end.
HAVE_WORKERS = (OPEN, SENDING, ACTING, BROKEN)
_UNUSABLE: dict[str, tuple[type[CorralError], str]] = {
    SENDING: (
        ClosedError,
        "a send was interrupted; close this pool and make a new one",
    ),
    ACTING: (
        OrderError,
        "the workers of this pool still run a call of sites, so nothing else can be "
        "sent to its slots; call finish of the sites or, after Ctrl-C in collect or "
        "run_episodes, call either again, or pool.drain(); or close the pool",
    ),
    BROKEN: (ClosedError, "a worker of this pool died; close it and make a new one"),
    CLOSED: (ClosedError, "this pool is closed; make another one"),
    FORKED: (
        OwnershipError,
        "this pool belongs to the parent of this forked process; make one here",
    ),
}


class Lifecycle:
    """The state of one pool or crew, made by the thread that it belongs to."""

    def __init__(self, noun: str = "pool") -> None:
        self.noun = noun
        self.state = UNBUILT
        # Waits until sites are no longer at work.
        self.drain_sites: Callable[[], None] | None = None
        self.owner = get_ident()

    def open(self) -> None:
        """Everything is built."""
        self.state = OPEN
        _open_pools.add(self)

    def close(self) -> None:
        """The pool cannot be used any more."""
        self.state = CLOSED
        _open_pools.discard(self)

    @contextmanager
    def sending(self, back: str = OPEN, more: bool = False) -> Iterator[None]:
        """Ctrl-C in here leaves it "sending", in which only `close` is safe.

        For what cannot be done in one go. A signal handler may close it meanwhile.

        Args:
            back: the state after it.
            more: whether a command follows at once, which ends the sending.
        """
        self.state = SENDING
        try:
            yield
        except CorralError:  # refused, or a worker ended: nothing was sent in part
            self._sent(back)
            raise
        if not more:
            self._sent(back)

    def _sent(self, back: str) -> None:
        if self.state == SENDING:
            self.state = back

    def check(self) -> None:
        """Raise unless the pool is open and used by the thread that owns it."""
        if self.state != OPEN:
            kind, why = _UNUSABLE.get(self.state, _UNUSABLE[CLOSED])
            raise kind(why.replace("pool", self.noun))
        if get_ident() != self.owner:
            raise OwnershipError(
                f"this {self.noun} belongs to the thread that made it; make one "
                f"{self.noun} per thread, or make the calls from its thread"
            )


class WorkersOwner:
    """Closed at the end of a `with` block, or when it is dropped; never copied."""

    _lifecycle: Lifecycle
    _executor: Executor

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._lifecycle.state == CLOSED

    def close(self, timeout: float | None = None) -> None:
        """Close every env and end every worker; bounded, idempotent, never raises."""
        if self._lifecycle.state in HAVE_WORKERS:
            try:
                self._lifecycle.close()
            finally:  # a signal handler may raise at any line
                self._end_workers(timeout)

    def _end_workers(self, timeout: float | None) -> None:
        self._executor.close(timeout)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        noun = self._lifecycle.noun
        raise TypeError(
            f"a {noun} owns workers, so it cannot be copied or pickled; make another "
            f"{noun} with the same arguments"
        )

    def __del__(self) -> None:
        if hasattr(self, "_lifecycle"):  # otherwise the arguments were refused
            self.close()


_open_pools: weakref.WeakSet[Lifecycle] = weakref.WeakSet()


def _disown_in_child() -> None:
    for life in list(_open_pools):
        life.state = FORKED


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_in_child)


Slots = Sequence[int] | NDArray[np.integer]
# Slots as an array, checked.
Chosen = NDArray[np.intp]
# A verb, and the autoreset mode that came with it.
Command = tuple[Verb, int]
BYTE_ORDER = sys.byteorder


def chosen_slots(slots: Slots, count: int) -> Chosen:
    """The slots as an array, checked: each at most once, all below `count`."""
    chosen = np.asarray(slots)
    if chosen.ndim != 1 or not chosen.size or chosen.dtype.kind not in "iu":
        raise OptionError(
            f"slots is {slots!r}; give a list of at least one integer, or leave it out"
        )
    if chosen.min() < 0 or chosen.max() >= count:
        raise OptionError(f"slots is {slots!r}; this pool has slots 0 to {count - 1}")
    if len(set(chosen.tolist())) != len(chosen):
        raise OptionError(f"slots is {slots!r}; give each slot only once")
    return chosen.astype(np.intp)


# What an env was asked: the verb and its arguments.
Asked = tuple[str, Any]
# Makes what a worker is asked from its slots.
Payload = Callable[[list[int]], Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A question that was asked and not yet answered.

    Attributes:
        slots: In the order of the answers.
        by_worker: Those of the slots that each worker runs.
        number: See `commands.Ask`.
        asked: By worker that was asked: how often it had been replaced. Empty once the
            answers are taken.
    """

    slots: list[int]
    by_worker: dict[int, list[int]]
    verb: str
    payload: Payload
    number: int
    asked: dict[int, int] = field(default_factory=dict)

    def to(self, slot: int | None) -> Asked | None:
        """What one slot was asked, if it was."""
        return (self.verb, self.payload([slot])) if slot in self.slots else None


class PoolState:
    """What is known of `count` slots and of the caller.

    Args:
        count: how many slots.
        done: the block's words for the ticket that each slot has finished; the workers
            write them.
    """

    def __init__(self, count: int, done: NDArray[np.uint32]) -> None:
        self.count = count
        self.done = done
        self.all = np.arange(count)
        self.tickets = Tickets(count)
        # Seeds, options and tasks that the caller gave are not in the block, and a
        # worker that was killed cannot report them.
        # By slot: the ticket that its latest such episode began with, and about it.
        self._requests: dict[int, tuple[int, dict[str, Any]]] = {}
        # By slot: the last ticket before a task with which no episode has begun yet,
        # and the task.
        self.assigned: dict[int, tuple[int, Any]] = {}
        # By slot: messages that belong to the pending command; kept only where workers
        # are replaced, for the new worker.
        self.messages: dict[int, list[Any]] = {}
        # How many slots have a pending command.
        self.waiting = 0
        # Results received since the start, modulo 2**32.
        self.taken = 0
        # How many slots need a reset before their next step.
        self.unstarted = count
        # How often something was sent, to any slots.
        self.send_count = 0
        # How many questions the envs were asked.
        self.question_count = 0
        # Of these, how many may have changed the envs; whether the last one may have.
        self.change_count = 0
        self.asked_for_change = False
        # By worker: its latest question, until the answers are taken.
        self.questions: dict[int, Question] = {}
        self._pending = np.zeros(count, np.bool_)
        # A batch to all slots sets this, and `_pending` only where it is read: two
        # fills a step would cost as much as the rest of the bookkeeping.
        self._whole = False
        # By slot: whether it was reset, and has not failed since.
        self.started = np.zeros(count, np.bool_)
        # The ticket of the last reset that each slot was sent.
        self._reset_at = np.zeros(count, np.int64)
        # `send_count` when the slot was sent to by itself, and with which command.
        self._sent_at = np.zeros(count, np.int64)
        self._commands = np.zeros((count, 2), np.uint8)
        self._whole_sent_at = 0
        self._whole_mode = 0
        self.opened_at = self.mark = perf_counter()
        # Nothing was pending: every worker waited for the caller.
        self.policy_seconds = 0.0
        # The caller waited for results; under serial, ran the envs.
        self.waiting_seconds = 0.0
        # In send and recv otherwise.
        self.copying_seconds = 0.0

    # The caller's time ----------------------------------------------------------------
    #
    #   send ─┤ copying ├ overlapped ┤ waiting ├ copying ├ recv returns ─ policy ─ send
    #
    # Five looks at the clock a step (four under serial), about 0.5 µs in all:
    # `benchmarks/stats_cost.py`.

    def enter(self) -> None:
        """A send begins, or a recv that has something to do before it waits."""
        now = perf_counter()
        if not self.waiting:
            self.policy_seconds += now - self.mark
        self.mark = now

    def leave(self) -> None:
        """A send or recv ends."""
        now = perf_counter()
        self.copying_seconds += now - self.mark
        self.mark = now

    def waited_since(self, began: float) -> None:
        """The waiting of a recv is over."""
        self.mark = now = perf_counter()
        self.waiting_seconds += now - began

    # Commands -------------------------------------------------------------------------

    def send_all(self, mode: int) -> None:
        """Record that every slot is sent a step."""
        self.tickets.base += 1
        self.waiting = self.count
        self._whole = True
        self.send_count = self._whole_sent_at = self.send_count + 1
        self._whole_mode = mode

    def send(self, slots: Chosen, verb: Verb, mode: int = 0) -> None:
        """Record that these slots are sent a command."""
        tickets = self.tickets
        tickets.offsets[slots] += 1
        tickets.even = False
        if self._whole:
            self._spread()
        self._pending[slots] = True
        self.waiting += len(slots)
        self.send_count += 1
        self._sent_at[slots] = self.send_count
        self._commands[slots] = verb, mode

    def take_all(self) -> None:
        """Every slot's result is received."""
        if not self._whole:
            self._pending[:] = False
        self._whole = False
        self.waiting = 0
        self.taken = self.taken + self.count & WORD_MASK

    def take(self, slots: Chosen) -> None:
        """These slots' results are received."""
        if self._whole:
            self._spread()
        count = len(slots)
        # Plain statements, with no call between them that Ctrl-C could come after.
        self._pending[slots] = False
        self.waiting -= count
        self.taken = self.taken + count & WORD_MASK

    def withdraw(self, slots: Chosen) -> None:
        """What these slots were sent last is not answered, and not sent again."""
        self._pending[slots] = False
        self.tickets.offsets[slots] -= 1
        self.waiting -= len(slots)

    def start(
        self,
        slots: Chosen,
        tickets: NDArray[np.int64],
        requests: dict[int, dict[str, Any]],
    ) -> None:
        """These slots are sent a reset with these tickets, some with requests."""
        self.started[slots] = True
        self._reset_at[slots] = tickets
        self.unstarted = self.count - int(np.count_nonzero(self.started))
        if requests or self._requests:
            for slot, ticket in zip(slots.tolist(), tickets.tolist(), strict=True):
                self._requests.pop(slot, None)
                if slot in requests:
                    self._requests[slot] = ticket & WORD_MASK, requests[slot]

    def stop(self, slots: Chosen) -> None:
        """These slots failed and need a reset before their next step."""
        self.unstarted = self.count  # until they are counted: Ctrl-C may come before
        self.started[slots] = False
        self.unstarted = self.count - int(np.count_nonzero(self.started))

    def results_taken(self, slots: Chosen, started: NDArray[np.bool_]) -> None:
        """Forget the messages and tasks of commands whose results are received."""
        for slot in slots.tolist():
            self.messages.pop(slot, None)
        for slot in slots[started].tolist() if self.assigned else ():
            ticket = self.tickets.of(slot)
            if slot in self.assigned and ticket > self.assigned[slot][0]:
                began = self.tickets.word(slot)
                self._requests[slot] = began, self.request_of(slot, began)
                del self.assigned[slot]

    def catch_up(
        self, tickets: NDArray[np.int64], started: NDArray[np.bool_], first: int = 0
    ) -> None:
        """Count what another sender has sent to slots; all of it is received.

        Args:
            tickets: the slots' last commands, whole or as words of the block.
            started: whether each was reset, and has not failed since.
            first: the first of the slots.
        """
        part = slice(first, first + len(tickets))
        ahead = tickets - self.tickets.words()[part] & WORD_MASK
        if ahead.any():
            self.tickets.offsets[part] += ahead
            self.tickets.even = False
            self.send_count += 1
        self.started[part] = started
        self.unstarted = self.count - int(np.count_nonzero(self.started))

    def forget_assigned(self, begun: NDArray[np.int64]) -> None:
        """Forget tasks that the slots' episodes, begun with these tickets, have."""
        for slot, (after, _) in [*self.assigned.items()]:
            if is_later(int(begun[slot]), after):
                del self.assigned[slot]

    # What is known of slots -----------------------------------------------------------

    def choose(self, slots: Slots | None) -> Chosen:
        """The slots meant, in the order given."""
        return self.all if slots is None else chosen_slots(slots, self.count)

    def tickets_of(self, slots: Chosen) -> NDArray[np.int64]:
        """The ticket of each slot's last command."""
        return self.tickets.base + self.tickets.offsets[slots]

    def request_of(self, slot: int, began: int) -> dict[str, Any]:
        """What the caller gave for the slot's episode that began with this ticket."""
        ticket, said = self._requests.get(slot, (None, {}))
        said = dict(said) if ticket == began else {}
        after, task = self.assigned.get(slot, (began, None))
        if is_later(began, after):
            said.setdefault("task", task)
        return said

    def pending(self) -> Chosen:
        """The slots with a pending command."""
        return self.all if self._whole else np.flatnonzero(self._pending)

    def _spread(self) -> None:
        """Mark slot by slot that a command to all is pending."""
        self._pending[:] = True
        self._whole = False

    def complete(self) -> bool:
        """Whether the results of all pending slots are there."""
        tickets = self.tickets
        if self.waiting == self.count and (tickets.even or tickets.level()):
            # Bytes: 64 slots take 0.2 µs, comparing arrays 2 µs.
            ticket = (tickets.base & WORD_MASK).to_bytes(4, BYTE_ORDER)
            return self.done.tobytes() == ticket * self.count
        return len(self.ready()) == self.waiting

    def ready(self) -> Chosen:
        """The slots whose results are there."""
        tickets = self.tickets  # `tickets.words`, without the call
        finished = self.done == tickets.base + tickets.offsets & WORD_MASK
        return np.flatnonzero(finished if self._whole else self._pending & finished)

    def missing(self, slots: Chosen) -> int:
        """How many of these slots' results are not there yet."""
        finished = self.done[slots] == self.tickets.words()[slots]
        return len(slots) - int(np.count_nonzero(finished))

    def unfinished(self, slots: Sequence[int]) -> list[int]:
        """Those of these slots with a pending command that is not done."""
        chosen = np.intersect1d(slots, self.pending())
        late = self.done[chosen] != self.tickets.words()[chosen]
        return list(chosen[late].tolist())

    def oldest(self, slots: Chosen, count: int) -> Chosen:
        """At most `count` of these slots, those sent to longest ago; ascending.

        A slot that is left out is older the next time. Of slots sent to together, those
        with fewer commands so far come first: otherwise low slots would be stepped more
        often.
        """
        if len(slots) <= count:
            return slots
        sent_at = np.maximum(self._sent_at[slots], self._whole_sent_at)
        order = np.lexsort((self.tickets.offsets[slots], sent_at))
        return np.sort(slots[order[:count]])

    def is_reset(self, slot: int) -> bool:
        """Whether the slot's last command was a reset."""
        return 0 < int(self._reset_at[slot]) == self.tickets.of(slot)

    def is_reset_since(self, slot: int, ticket: int) -> bool:
        """Whether the slot was sent a reset after this command, a word of the block."""
        return is_later(int(self._reset_at[slot]), ticket)

    def has_failed(self, slot: int) -> bool:
        """Whether the slot failed since its last reset."""
        return bool(self._reset_at[slot]) and not self.started[slot]

    def has_begun(self, slot: int, word: int) -> bool:
        """Whether an episode of the slot has begun; `word`: the ticket, 0 for none.

        An episode may begin with a ticket that is 0 as a word of the block.
        """
        done = self.tickets.whole(slot, int(self.done[slot]))
        return bool(word) or done > WORD_MASK

    def is_stepped(self, slot: int, autoreset: int) -> bool:
        """Whether the slot's last command was a step with this mode of autoreset."""
        # A slot that only a site has stepped was sent no command.
        verb, mode = self._last_sent(slot)
        return verb == Verb.STEP and mode % WIDE_ACTIONS == autoreset

    def command(self, slot: int) -> Command:
        """The slot's last command."""
        verb, mode = self._last_sent(slot)
        return Verb(verb), mode

    def _last_sent(self, slot: int) -> tuple[int, int]:
        """Verb and mode of its last command; zeros if it was sent none."""
        if self._sent_at[slot] < self._whole_sent_at:
            return Verb.STEP, self._whole_mode
        verb, mode = self._commands[slot].tolist()
        return verb, mode

    # Checks ---------------------------------------------------------------------------

    def check_sendable(self, slots: Chosen, started: bool) -> None:
        """None of them may have a pending command; `started`: all need a reset."""
        busy = slots if self._whole else slots[self._pending[slots]]
        if len(busy):
            raise OrderError(
                f"slots {busy.tolist()} have a pending command; call recv first"
            )
        if started and self.unstarted and not self.started[slots].all():
            idle = slots[~self.started[slots]]
            raise OrderError(
                f"slots {idle.tolist()} have not been reset since they were built or "
                "failed; call reset or send_reset before their first step"
            )

    def check_pending(self, slots: Chosen) -> None:
        """All of them must have a pending command."""
        idle = slots[:0] if self._whole else slots[~self._pending[slots]]
        if len(idle):
            raise OrderError(
                f"slots {idle.tolist()} have no pending command; send to them first"
            )
