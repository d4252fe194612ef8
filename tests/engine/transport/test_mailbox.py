"""Messages arrive whole, in order, and never at the price of a hang."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from running import at_moment

from corral.engine.transport.mailbox import LocalMailbox, Mailbox, MailboxClosed

Start = Callable[..., "subprocess.Popen[str]"]
Sockets = tuple[socket.socket, socket.socket]
Pair = tuple[Mailbox, Mailbox]
Ends = Pair | tuple[LocalMailbox, LocalMailbox]

ATTACH = """
import sys
from corral.engine.transport.mailbox import Mailbox

mailbox = Mailbox.attach(int(sys.argv[1]))
"""


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    ours, theirs = Mailbox.pair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def pair(sockets: Sockets) -> Pair:
    ours, theirs = sockets
    return Mailbox(ours), Mailbox(theirs)


@pytest.fixture(params=["process", "thread"])
def ends(request: pytest.FixtureRequest, pair: Pair) -> Ends:
    return pair if request.param == "process" else LocalMailbox.pair()


def test_messages_arrive_in_order_both_ways(ends: Ends) -> None:
    ours, theirs = ends
    for number in range(50):
        ours.post(number)
        theirs.post({"back": number})
    assert [theirs.fetch() for _ in range(50)] == list(range(50))
    assert [ours.fetch() for _ in range(50)] == [{"back": n} for n in range(50)]


def test_first_message_stays_until_it_is_deleted(ends: Ends) -> None:
    ours, theirs = ends
    for message in "one", "two":
        ours.post(message)
    assert [theirs.first(), theirs.first()] == ["one", "one"]
    del theirs.inbox[0]
    assert theirs.first() == theirs.fetch() == "two"
    with pytest.raises(TimeoutError):
        theirs.first(timeout=0.01)


def test_end_that_was_closed_is_told_more_than_once() -> None:
    ours, theirs = LocalMailbox.pair()
    ours.close()
    for _ in range(2):
        with pytest.raises(MailboxClosed):
            theirs.first()


def test_fetch_of_nothing_times_out(ends: Ends) -> None:
    with pytest.raises(TimeoutError):
        ends[0].fetch(timeout=0.01)


def test_fetch_waits_for_a_later_post(ends: Ends) -> None:
    ours, theirs = ends
    poster = threading.Thread(target=lambda: ours.post("late"))
    poster.start()
    assert theirs.fetch(timeout=10) == "late"
    poster.join()


def test_closed_end_delivers_what_it_posted_then_says_so(ends: Ends) -> None:
    ours, theirs = ends
    theirs.post("last words")
    theirs.close()
    theirs.close()
    assert ours.fetch() == "last words"
    with pytest.raises(MailboxClosed):
        ours.fetch()
    with pytest.raises(MailboxClosed):
        ours.post("too late")


def test_own_end_is_of_no_use_once_closed(ends: Ends) -> None:
    ours, _ = ends
    ours.close()
    with pytest.raises(MailboxClosed):
        ours.fetch()
    with pytest.raises(MailboxClosed):
        ours.post("nobody sends this")


def test_lambdas_travel(pair: Pair) -> None:
    ours, theirs = pair
    offset = 40
    ours.post(lambda number: number + offset)
    add = theirs.fetch()
    assert callable(add)
    assert add(2) == 42


def test_half_a_message_is_not_a_message(sockets: Sockets) -> None:
    ours, theirs = sockets
    mailbox = Mailbox(ours)
    theirs.sendall((100).to_bytes(8, "little") + b"half")
    with pytest.raises(TimeoutError):
        mailbox.fetch(timeout=0.0)
    theirs.close()
    with pytest.raises(MailboxClosed):
        mailbox.fetch()


def test_big_messages_cross_without_deadlock(start: Start, sockets: Sockets) -> None:
    ours, theirs = sockets
    script = (
        ATTACH
        + """
mailbox.post(b"w" * 50_000_000)
message = mailbox.fetch(30)
assert len(message) == 50_000_000 and set(message) == set(b"p")
"""
    )
    worker = start(script, theirs.fileno(), pass_fds=[theirs.fileno()])
    theirs.close()
    mailbox = Mailbox(ours)
    mailbox.post(b"p" * 50_000_000, timeout=30)
    message = mailbox.fetch(timeout=30)
    assert isinstance(message, bytes)
    assert len(message) == 50_000_000
    assert set(message) == set(b"w")
    assert worker.wait() == 0


def test_post_that_timed_out_goes_on_with_the_next_one(pair: Pair) -> None:
    ours, theirs = pair
    big = b"x" * 5_000_000
    with pytest.raises(TimeoutError):
        ours.post(big, timeout=0.01)
    messages: list[object] = []

    def read() -> None:
        messages.extend(theirs.fetch(timeout=10) for _ in range(2))

    reader = threading.Thread(target=read)
    reader.start()
    ours.post("next", timeout=10)
    reader.join()
    assert messages == [big, "next"]


def test_what_was_put_goes_out_piece_by_piece(pair: Pair) -> None:
    ours, theirs = pair
    big = b"x" * 5_000_000
    ours.put(pickle.dumps(big))
    flushes = 0
    while not ours.flush(timeout=0):
        flushes += 1
        with pytest.raises(TimeoutError):
            theirs.fetch(timeout=0)  # which makes room for more
    assert flushes > 1
    assert theirs.fetch(timeout=10) == big
    assert ours.flush(timeout=0)


@pytest.mark.parametrize("way", ["close", "hang_up"])
def test_end_is_final_also_where_somebody_holds_a_copy(pair: Pair, way: str) -> None:
    """As a forked child does; what was posted before can still be read."""
    ours, theirs = pair
    with socket.socket(fileno=os.dup(ours._connection.fileno())):
        ours.post("last")
        getattr(ours, way)()
        getattr(ours, way)()
        assert theirs.fetch(timeout=10) == "last"
        with pytest.raises(MailboxClosed):
            theirs.fetch(timeout=10)


def test_thread_that_waits_is_told_when_another_hangs_up(pair: Pair) -> None:
    ours, _ = pair
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            ours.fetch()
        except MailboxClosed as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    ours.hang_up()
    waiting.join(10)
    assert len(raised) == 1


@pytest.mark.parametrize("name", ["post", "fetch"])
def test_end_that_a_signal_handler_closes_says_so(name: str) -> None:
    def handler() -> None:
        ours.post("closing", 0.0)
        ours.close()

    def operation() -> None:
        ours.post("one", 1.0) if name == "post" else ours.fetch(0.01)

    moment, more = 0, True
    while more:
        moment += 1
        ours, theirs = (Mailbox(end) for end in Mailbox.pair())
        with suppress(MailboxClosed, TimeoutError):
            more = at_moment(moment, operation, handler)
        ours.close()
        theirs.close()
        more &= moment < 100  # a fetch always ends with an error
    assert moment > 10


def test_last_message_of_a_killed_worker_can_be_fetched(
    start: Start, sockets: Sockets
) -> None:
    ours, theirs = sockets
    script = (
        ATTACH
        + """
import os, signal
mailbox.post("goodbye")
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    worker = start(script, theirs.fileno(), pass_fds=[theirs.fileno()])
    theirs.close()
    mailbox = Mailbox(ours)
    mailbox.post("never read")
    assert worker.wait() == -signal.SIGKILL
    assert mailbox.fetch() == "goodbye"
    with pytest.raises(MailboxClosed):
        mailbox.fetch()


def test_worker_killed_during_a_post_is_an_error_not_a_hang(
    start: Start, sockets: Sockets
) -> None:
    ours, theirs = sockets
    script = (
        ATTACH
        + """
import os, signal
mailbox._wait(1, float("inf"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    start(script, theirs.fileno(), pass_fds=[theirs.fileno()])
    theirs.close()
    with pytest.raises(MailboxClosed):
        Mailbox(ours).post(b"x" * 50_000_000, timeout=30)


def test_local_messages_are_not_copied() -> None:
    ours, theirs = LocalMailbox.pair()
    message = object()
    ours.post(message)
    assert theirs.fetch() is message


def test_pair_is_not_inherited_by_accident(sockets: Sockets) -> None:
    assert not any(end.get_inheritable() for end in sockets)
