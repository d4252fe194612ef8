"""Doorbells wake one waiter: the only wake-up between a pool and its workers.

A doorbell is a count of rings, modulo 2**32, in one line of the block. Ringers add to
it, the waiter waits until it has reached a target:

    worker    bell.ring()                 once per slot that is done
              bell.flush()                at the end of the shard
    parent    bell.wait(target, 0.2)      True: reached; False: not yet
              bell.announce()             to many, then
              bell.flush()                to each: spinners first, sleepers after

Two twins share these names and tests. `KIND` says which one this process prefers:
"futex" (C, words in the block, spin then sleep) or "event" (Python, an eventfd).

Guarantees:
    - No ring is lost, however many ring at the same time; targets may wrap around.
    - A ring is seen at the latest at the ringer's next ``flush()``; by futex, at once,
      and an announcement by a futex waiter that spins.
    - Ctrl-C interrupts a wait. No single sleep is longer than a quarter second, so a
      ringer killed between its two steps, or a lifeline cut, is noticed by then.
    - Ringing never blocks.
    - A signal handler may raise, ring or close the bell inside any of these methods:
      each ring still counts once. What is called on a closed bell then, or goes on
      there, may raise a ValueError.
Assumes:
    - One waiter per bell, any number of ringers, in any processes and threads.
    - All use the same kind. The line is zeroed before the first of them attaches.
    - Targets stay within 2**31 of the count.
    - Event twin only, without eventfds: the death of a ringer that has just made room
      in a full pipe loses those rings.
"""

from __future__ import annotations

import errno
import os
import select
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Literal, TypeAlias

try:
    from corral.engine.transport import _doorbell as _doorbell  # lifeline uses it too
except ImportError:  # built without a compiler, or not on Linux
    HAS_FUTEX = False
else:
    HAS_FUTEX = True

Kind = Literal["futex", "event"]

# Bytes of the block per bell: one cache line, so that bells do not slow each other.
CACHE_LINE_BYTES = 64

_wanted = os.environ.get("CORRAL_PURE_PYTHON") != "1"
# What `create` makes unless told otherwise.
KIND: Kind = "futex" if HAS_FUTEX and _wanted else "event"

# The words of a line, as in _doorbell.c; TARGET and SLEEPING are the futex's alone.
COUNT, TARGET, SLEEPING, STOPPED, EAGER = range(5)

_LONGEST_SLEEP = 0.25
# What travels through a descriptor, and how many of them are read at once: much more
# than a waiter finds, and less than a full pipe holds.
_NUMBER_BYTES = 8
_READ_NUMBERS = 512
_WORD_MASK = 2**32 - 1


# Both twins have the same methods, with positional arguments.
Doorbell: TypeAlias = "EventDoorbell | _doorbell.FutexDoorbell"


def create(memory: memoryview, offset: int, kind: Kind | None = None) -> Doorbell:
    """Hang a bell in the zeroed line at that offset, a multiple of LINE."""
    kind = kind or KIND
    return attach(memory, offset, _open() if kind == "event" else None, kind)


def attach(
    memory: memoryview, offset: int, descriptor: int | None, kind: Kind
) -> Doorbell:
    """Use, in a worker, a bell that `create` hung; owns the inherited descriptor."""
    if kind == "futex":
        if not HAS_FUTEX:
            raise ImportError("futex doorbells need corral's C extension")
        return _doorbell.FutexDoorbell(memory, offset)
    assert descriptor is not None, "an event doorbell travels as a descriptor"
    os.set_inheritable(descriptor, False)
    return EventDoorbell(memory, offset, descriptor)


class EventDoorbell:
    """The Python twin, on an eventfd.

    The waiter alone writes the count: it adds what it reads from the descriptor.
    Ringers keep their rings to themselves until `flush`, so that a busy waiter costs
    no system calls, unless the waiter is waiting right now: EAGER then has the number
    of rings it still wants, and a ringer that holds a quarter of them shows them.
    Every ring at once would wake the waiter for each slot. A ringer may read EAGER
    just before the waiter sets it, and so hold a ring back from a waiter that goes to
    sleep; that ring is what the next `flush` is for. Looking again would not help the
    waiter, since the ring is in the ringer's memory.

    A signal handler may come after any call. So a number moves between an array and the
    descriptor within one call, of `next`, and on from there by plain statements; and
    what a handler finds in the arrays is what there is, whatever it has interrupted.
    """

    def __init__(self, memory: memoryview, offset: int, descriptor: int) -> None:
        """Take over a descriptor, which must be non-blocking."""
        self._words = memory[offset : offset + CACHE_LINE_BYTES].cast("I")
        # What a worker must inherit to attach; None for a futex.
        self.descriptor: int | None = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        # One number: the rings that are not shown yet.
        self._held_back = held_back = array("Q", [0])
        # What the waiter, and ringers, have read and not added up yet.
        self._arrived, self._taken_back = array("Q"), array("Q")
        # The descriptor for what follows; -1 once the bell is closed.
        self._latest = [descriptor]
        descriptors = map(self._latest.__getitem__, repeat(0))
        written = map(os.write, descriptors, repeat(held_back))
        read = map(os.read, descriptors, repeat(_READ_NUMBERS * _NUMBER_BYTES))
        cleared = map(held_back.__setitem__, repeat(0), repeat(0))
        # Each `next` of these is one call: moves what is held back to the descriptor,
        self._shows = zip(written, cleared, strict=False)
        # or what is in the descriptor to the end of an array.
        self._arrivals = map(self._arrived.frombytes, read)
        self._takings = map(self._taken_back.frombytes, read)
        # Ringers may be threads that share this object. Entered again by a signal
        # handler that closes a pool, whatever it has interrupted.
        self._lock = threading.RLock()

    @property
    def count(self) -> int:
        """The rings so far, modulo 2**32; on an event, those the waiter has seen."""
        return self._words[COUNT]

    @property
    def sleeps_here(self) -> bool:
        """Whether the waiter last went to sleep on the core of this thread.

        An event does not know.
        """
        return False

    def ring(self, count: int = 1, /) -> None:
        """Add to the count and wake the waiter if that is what it waits for.

        An event shows the rings to a waiter that is busy at the next `flush`.
        """
        with self._lock:
            self._held_back[0] += count
        wanted = self._words[EAGER]
        if wanted and 4 * self._held_back[0] >= wanted:
            self.flush()

    def announce(self) -> None:
        """Ring once for a waiter that spins; one that sleeps is woken by `flush`.

        A caller that rings many bells announces to all before it flushes any: a wake-up
        is a system call of some µs, and the bells behind it would wait for it.
        """
        with self._lock:
            self._held_back[0] += 1

    def wait(
        self, target: int, timeout: float | None = None, spin: float = 0.0, /
    ) -> bool:
        """Wait until the count has reached the target.

        Args:
            target: any int; its low 32 bits count.
            timeout: seconds; None for ever, 0 to only look.
            spin: seconds to burn before sleeping; an event never spins.

        Returns:
            False if the time is up, or if the lifeline of this bell's worker was cut.
        """
        if self._has_reached(target):
            return True
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        self._words[EAGER] = (target - self._words[COUNT]) % 2**32
        try:
            while not self._collect_and_reach(target):
                remaining = deadline - time.monotonic()
                if remaining <= 0 or self._words[STOPPED]:
                    return False
                self._poll.poll(min(remaining, _LONGEST_SLEEP) * 1000)
                if self.descriptor is None:  # closed by a signal handler meanwhile
                    return False
            return True
        finally:
            if self.descriptor is not None:
                self._words[EAGER] = 0

    def flush(self) -> None:
        """Show every ring so far to the waiter."""
        held_back, taken_back = self._held_back, self._taken_back
        with self._lock:
            while held_back[0] and self.descriptor is not None:
                try:
                    next(self._shows)
                except BlockingIOError:
                    # A full pipe: make one number of many, since there may be no later
                    # flush, and the waiter may look at any time or never.
                    self._receive(taken_back, self._takings)
                except OSError as error:
                    self._raise_unless_closed(error)
                while taken_back:
                    held_back[0] += taken_back[-1]
                    del taken_back[-1]

    def close(self) -> None:
        """Flush, then let go of the memory and the descriptor; idempotent.

        A thread may close for one that waits for it inside `flush`, in a signal handler
        there. That one has the lock then, and the rest is its own to flush.
        """
        if self._lock.acquire(blocking=False):
            try:
                self.flush()
            finally:
                self._lock.release()
        descriptor, self.descriptor, self._latest[0] = self.descriptor, None, -1
        if descriptor is not None:
            try:
                os.close(descriptor)
            finally:
                self._words.release()

    def _collect_and_reach(self, target: int) -> bool:
        """Add up what arrived, then look."""
        arrived, words = self._arrived, self._words
        self._receive(arrived, self._arrivals)
        while arrived:
            words[COUNT] = words[COUNT] + arrived[-1] & _WORD_MASK
            del arrived[-1]
        return self._has_reached(target)

    def _receive(self, numbers: array[int], steps: Iterator[object]) -> None:
        """Move all that is in the descriptor to the end of an array."""
        received = _READ_NUMBERS
        while received == _READ_NUMBERS:
            before = len(numbers)
            try:
                next(steps)
            except BlockingIOError:
                return
            except OSError as error:
                self._raise_unless_closed(error)
                raise ValueError("the doorbell is closed") from None
            # An eventfd gives one sum, a pipe every number that was written.
            received = len(numbers) - before
            if not received:  # it would look so for ever
                why = "a doorbell's descriptor is now another file"
                raise OSError(errno.EBADF, why)

    def _raise_unless_closed(self, error: OSError) -> None:
        """Raise an error that does not come from a signal handler's `close`."""
        if self.descriptor is not None or error.errno != errno.EBADF:
            raise error

    def _has_reached(self, target: int) -> bool:
        return (self._words[COUNT] - target) % 2**32 < 2**31


def _open() -> int:
    """Open a descriptor that takes 8-byte numbers and gives them back."""
    if hasattr(os, "eventfd"):
        return os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    # A pipe with both ends in one descriptor is a fifo whose name is gone.
    with tempfile.TemporaryDirectory(prefix="corral-") as folder:
        path = Path(folder, "doorbell")
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)
