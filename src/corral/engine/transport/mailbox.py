"""A mailbox carries rare things as pickled messages: factories, faults, odd infos.

A message is a uint64 length and as many pickled bytes, on one end of a socket pair.

Guarantees:
    - Two ends that post at the same time do not deadlock, whatever the size: an end
      that cannot write reads meanwhile, into its inbox.
    - Messages arrive whole and in order. What was posted before an end closed or died
      can still be fetched from the other.
    - A post that timed out or was interrupted by Ctrl-C is not torn: its rest goes out
      first with the next post.
    - A message stays in the `inbox` until its reader deletes it there, with the plain
      statement that also stores it. Python runs signal handlers between calls and at
      the ends of loops, so Ctrl-C does not come between plain statements.
Assumes:
    - Each end belongs to one thread.
    - Both ends trust each other: fetching unpickles.
"""

from __future__ import annotations

import math
import os
import pickle
import queue
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Any, TypeAlias

import cloudpickle

_LENGTH = struct.Struct("=Q")
# Bytes up to which a message is copied behind its length, to save a system call.
_SMALL_MESSAGE_BYTES = 1 << 16
# A worker that died must be an error here, not a SIGPIPE that ends the parent.
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)


class MailboxClosed(ConnectionError):
    """The other end is gone, or this one was closed."""


class MailboxTimeout(TimeoutError):
    """The other end is late; other code, as a signal handler, may raise its parent."""


@dataclass(slots=True, eq=False)
class _Transfer:
    """Some bytes in transfer, and how many of them each system call has moved.

    Ctrl-C may come after any call, so also between sending some bytes and remembering
    how many. Therefore `moved` is extended by `map(send, ...)`, which does both inside
    one call, and everything else follows from it.
    """

    data: bytes | bytearray
    is_length: bool = False
    moved: list[int] = field(default_factory=list)

    def rest(self) -> memoryview:
        """What has not been moved yet."""
        return memoryview(self.data)[sum(self.moved) :]


class Mailbox:
    """One end, between two processes.

    Attributes:
        inbox: What has arrived and was not fetched, pickled.

    Example:
        >>> ours, theirs = (Mailbox(end) for end in Mailbox.pair())
        >>> ours.post({"seed": 3})
        >>> theirs.fetch()
        {'seed': 3}
        >>> ours.close(), theirs.close()
        (None, None)
    """

    def __init__(self, connection: socket.socket) -> None:
        """Take over one end of a `pair`."""
        connection.setblocking(False)
        self._connection = connection
        self._outbox: deque[_Transfer] = deque()
        self.inbox: deque[bytearray] = deque()
        self._ended = False
        self._part = _Transfer(bytearray(_LENGTH.size), is_length=True)

    @staticmethod
    def pair() -> tuple[socket.socket, socket.socket]:
        """Make the parent's end and the one whose descriptor a worker inherits."""
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    @classmethod
    def attach(cls, descriptor: int) -> Mailbox:
        """Use, in a worker, an inherited end, and own it."""
        # Else a program that the env starts would keep our end open after our death.
        os.set_inheritable(descriptor, False)
        return cls(socket.socket(fileno=descriptor))

    def post(self, message: object, timeout: float | None = None) -> None:
        """Pickle a message and hand it to the other end.

        Raises:
            MailboxClosed: the other end is gone.
            MailboxTimeout: the other end did not read in time.
        """
        self.post_bytes(cloudpickle.dumps(message), timeout)

    def post_bytes(self, data: bytes, timeout: float | None = None) -> None:
        """Post what is pickled already, for instance once for many workers."""
        self.put(data)
        if not self.flush(timeout):
            raise MailboxTimeout("the other end of the mailbox did not read in time")

    def put(self, data: bytes) -> None:
        """Have it posted by the next `flush`."""
        assert data, "no pickle is empty"
        length = _LENGTH.pack(len(data))
        if len(data) < _SMALL_MESSAGE_BYTES:
            self._outbox.append(_Transfer(length + data))
        else:
            self._outbox.extend((_Transfer(length), _Transfer(data)))

    def flush(self, timeout: float | None = None) -> bool:
        """Post what was put; False if the other end did not read it all in time."""
        deadline = deadline_after(timeout)
        while self._outbox:
            if not self._send():
                if not self._wait(select.POLLIN | select.POLLOUT, deadline):
                    return False
                self._receive()
        return True

    def fileno(self) -> int:
        """Its descriptor; -1 once it is closed."""
        return self._connection.fileno()

    def fetch(self, timeout: float | None = None) -> Any:
        """Wait for one message and unpickle it.

        Raises:
            MailboxClosed: the other end is gone and nothing is left to read.
            MailboxTimeout: no whole message arrived in time.
        """
        self._await_message(timeout)
        return pickle.loads(self.inbox.popleft())

    def first(self, timeout: float | None = None) -> Any:
        """The same, but the message stays until `del mailbox.inbox[0]`."""
        self._await_message(timeout)
        return pickle.loads(self.inbox[0])

    def _await_message(self, timeout: float | None) -> None:
        deadline = deadline_after(timeout)
        while not self.inbox:
            if self._ended:
                raise MailboxClosed("the other end of the mailbox is gone")
            if not self._receive() and not self._wait(select.POLLIN, deadline):
                raise MailboxTimeout("the other end of the mailbox did not answer")

    def hang_up(self) -> None:
        """Let the other end read what was posted, and no more; idempotent.

        Any thread may, also while another waits for this end: it then sees the end too.
        """
        # Closing alone would not do where a forked child still holds a copy.
        with suppress(OSError):  # the other end has hung up, or this one was closed
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up, and close this end; idempotent."""
        self._ended = True
        self.hang_up()
        with suppress(OSError):  # an env has closed all descriptors it could find
            self._connection.close()

    def _send(self) -> bool:
        """Send some of the outbox; False if the socket takes nothing now."""
        if not self._outbox:  # a signal handler that closes the pool has sent it
            return True
        part = self._outbox[0]
        rest = part.rest()
        if not rest:
            if self._outbox and self._outbox[0] is part:  # as above
                del self._outbox[0]
            return True
        try:
            part.moved.extend(map(self._connection.send, (rest,), (_SEND_FLAGS,)))
        except BlockingIOError:
            return False
        except OSError as error:
            self._outbox.clear()
            raise MailboxClosed("the other end of the mailbox is gone") from error
        return True

    def _receive(self) -> bool:
        """Receive some of a message; False if there is nothing to receive now."""
        if self._ended:
            return False
        part = self._part
        rest = part.rest()
        if not rest:
            self._finish(part)
            return True
        try:
            part.moved.extend(map(self._connection.recv_into, (rest,)))
        except BlockingIOError:
            return False
        except OSError:  # reset: the other end died with our messages unread
            part.moved.append(0)
        self._ended = not part.moved[-1]
        return not self._ended

    def _finish(self, part: _Transfer) -> None:
        """A length is followed by its message, a message by the next length."""
        if part.is_length:
            # All of it at once: growing would copy a big message often.
            size = _LENGTH.unpack(part.data)[0]
            self._part = _Transfer(bytearray(size))
        else:
            assert isinstance(part.data, bytearray)
            following = _Transfer(bytearray(_LENGTH.size), is_length=True)
            self.inbox += (part.data,)  # plain statements: both, or none
            self._part = following

    def _wait(self, events: int, deadline: float) -> bool:
        """Wait until the socket is ready for one of the events; False if it is late."""
        descriptor = self._connection.fileno()
        if descriptor < 0:  # closed by a signal handler: look again
            return True
        poll = select.poll()
        poll.register(descriptor, events if not self._ended else select.POLLOUT)
        left = deadline - time.monotonic()
        return left > 0 and bool(poll.poll(None if left == math.inf else left * 1000))


Messages: TypeAlias = "queue.SimpleQueue[object]"
# The last message of a mailbox that was closed.
_CLOSED = object()


class LocalMailbox:
    """One end, between two threads: the same verbs, and nothing is pickled.

    Args:
        inbox: what this end fetches.
        outbox: what the other end fetches.
        closed: set once one of the ends was closed.

    Attributes:
        inbox: What has arrived and was not fetched.
    """

    def __init__(self, inbox: Messages, outbox: Messages, closed: Event) -> None:
        self._arriving, self._outbox, self._closed = inbox, outbox, closed
        self.inbox: deque[object] = deque()

    @classmethod
    def pair(cls) -> tuple[LocalMailbox, LocalMailbox]:
        """Make both ends."""
        ours = cls(queue.SimpleQueue(), queue.SimpleQueue(), Event())
        return ours, ours.other()

    def other(self) -> LocalMailbox:
        """The other end."""
        return LocalMailbox(self._outbox, self._arriving, self._closed)

    def post(self, message: object, timeout: float | None = None) -> None:
        """Hand a message to the other end; never blocks."""
        if self._closed.is_set():
            raise MailboxClosed("the mailbox is closed")
        self._outbox.put(message)

    put = post

    def flush(self, timeout: float | None = None) -> bool:
        """True: what was put is there."""
        return True

    def fetch(self, timeout: float | None = None) -> Any:
        """Wait for one message."""
        message = self.first(timeout)
        del self.inbox[0]
        return message

    def first(self, timeout: float | None = None) -> Any:
        """The same, but the message stays until `del mailbox.inbox[0]`."""
        while not self.inbox:
            try:
                # Both in one call: Ctrl-C must not come between.
                self.inbox.extend(map(self._arriving.get, (True,), (timeout,)))
            except queue.Empty:
                late = MailboxTimeout("the other end of the mailbox did not answer")
                raise late from None
        if self.inbox[0] is _CLOSED:  # also for the next fetch
            raise MailboxClosed("the mailbox is closed")
        return self.inbox[0]

    def close(self) -> None:
        """Close both ends, since they are one object; idempotent."""
        self._closed.set()
        self._arriving.put(_CLOSED)
        self._outbox.put(_CLOSED)


def readable(mailboxes: Iterable[int], seconds: float) -> list[int]:
    """Those of these descriptors with a message, or an end; waits for the first."""
    poll = select.poll()
    for mailbox in mailboxes:
        poll.register(mailbox, select.POLLIN)
    return [mailbox for mailbox, _ in poll.poll(max(0.0, seconds) * 1000)]


def deadline_after(timeout: float | None) -> float:
    """A time of `time.monotonic`; infinite for no timeout."""
    return math.inf if timeout is None else time.monotonic() + timeout
