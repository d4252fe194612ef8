"""One body for both twins, and for the event on a pipe where there is no eventfd."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import at_moment, open_descriptors

from corral.engine.transport import doorbell
from corral.engine.transport.block import Block
from corral.engine.transport.doorbell import CACHE_LINE_BYTES, Doorbell, Kind

Start = Callable[..., "subprocess.Popen[str]"]
Until = Callable[[Callable[[], object]], None]

needs_extension = pytest.mark.skipif(
    not doorbell.HAS_FUTEX, reason="the C extension is not built"
)

ATTACH = """
import sys
from corral.engine.transport import doorbell
from corral.engine.transport.block import Block

kind, block_descriptor, bell_descriptor = sys.argv[1], int(sys.argv[2]), sys.argv[3]
block = Block.attach(block_descriptor, doorbell.CACHE_LINE_BYTES)
bell = doorbell.attach(
    block.memory, 0, None if bell_descriptor == "None" else int(bell_descriptor), kind
)
"""


class Hung:
    """A bell in a block of its own, and what another process needs to attach."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.block = Block.create(CACHE_LINE_BYTES, shared=True)
        self.bell: Doorbell = doorbell.create(self.block.memory, 0, kind)
        self.words = self.block.memory.cast("I")

    def close(self) -> None:
        self.bell.close()
        self.block.close()

    def attach_arguments(self) -> tuple[object, ...]:
        return self.kind, self.block.descriptor, self.bell.descriptor

    def descriptors(self) -> list[int]:
        every = (self.block.descriptor, self.bell.descriptor)
        return [descriptor for descriptor in every if descriptor is not None]

    def has_waiter(self) -> int:
        return self.words[doorbell.SLEEPING if self.kind == "futex" else doorbell.EAGER]


@pytest.fixture(params=[pytest.param("futex", marks=needs_extension), "event", "pipe"])
def hung(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hung]:
    if request.param == "pipe":
        monkeypatch.delattr(os, "eventfd", raising=False)
    hung = Hung("futex" if request.param == "futex" else "event")
    yield hung
    hung.close()


def test_count_that_was_reached_is_not_waited_for(hung: Hung) -> None:
    hung.bell.ring()
    hung.bell.ring(4)
    hung.bell.flush()
    assert hung.bell.wait(5)
    assert hung.bell.wait(3, 0.0)
    assert hung.bell.count == 5


@pytest.mark.parametrize("timeout", [-1.0, 0.0, 0.01])
def test_wait_gives_up_when_its_time_is_over(hung: Hung, timeout: float) -> None:
    hung.bell.ring(2)
    hung.bell.flush()
    assert not hung.bell.wait(3, timeout, 0.001)
    assert not hung.has_waiter()
    assert hung.bell.count == 2


def test_count_wraps_around(hung: Hung) -> None:
    hung.words[doorbell.COUNT] = 2**32 - 2
    assert not hung.bell.wait(2**32 + 3, 0.0)
    hung.bell.ring(5)
    hung.bell.flush()
    assert hung.bell.wait(2**32 + 3, 0.0)
    assert hung.bell.count == 3
    assert not hung.bell.wait(2**32 + 4, 0.0)


@needs_extension
@given(st.integers(0, 2**32 - 1), st.integers(-(2**31) + 1, 2**31 - 1))
def test_twins_agree_on_what_is_reached(count: int, ahead: int) -> None:
    for kind in ("futex", "event"):
        line = memoryview(bytearray(CACHE_LINE_BYTES)).cast("I")
        line[doorbell.COUNT] = count
        bell = doorbell.create(line.cast("B"), 0, kind)
        assert bell.wait(count + ahead, 0.0) == (ahead <= 0)
        bell.close()


def test_sleeping_waiter_is_woken(hung: Hung, until: Until) -> None:
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(hung.bell.wait(2)))
    waiter.start()
    until(hung.has_waiter)
    hung.bell.ring()
    hung.bell.ring()
    hung.bell.flush()
    waiter.join(10)
    assert answers == [True]


@needs_extension
def test_futex_knows_the_core_of_its_sleeper() -> None:
    cores = os.sched_getaffinity(0)
    here, *others = sorted(cores)
    hung = Hung("futex")
    try:
        os.sched_setaffinity(0, {here})
        assert not hung.bell.wait(1, 0.001)
        assert hung.bell.sleeps_here
        for other in others[:1]:
            os.sched_setaffinity(0, {other})
            assert not hung.bell.sleeps_here
    finally:
        os.sched_setaffinity(0, cores)
        hung.close()


def test_ringers_in_many_processes_lose_no_ring(hung: Hung, start: Start) -> None:
    script = (
        ATTACH
        + """
for number in range(5000):
    bell.ring()
    if number % 7 == 0:
        bell.flush()
bell.flush()
"""
    )
    ringers = [
        start(script, *hung.attach_arguments(), pass_fds=hung.descriptors())
        for _ in range(3)
    ]
    for target in range(0, 15_001, 3):
        assert hung.bell.wait(target, 30.0, 20e-6 * (target % 2))
    assert [ringer.wait() for ringer in ringers] == [0, 0, 0]
    assert hung.bell.count == 15_000


def test_more_rings_than_a_pipe_holds_are_there_after_the_flush(hung: Hung) -> None:
    for _ in range(20_000):
        hung.bell.ring()
        hung.bell.flush()
    assert hung.bell.wait(20_000, 0.0)
    assert hung.bell.count == 20_000


def test_two_processes_play_ping_pong(hung: Hung, start: Start) -> None:
    back = Hung(hung.kind)
    script = (
        ATTACH
        + """
sys.argv[1:] = sys.argv[4:]
ping = bell
"""
        + ATTACH.replace("import sys", "")
        + """
for number in range(1, 2001):
    assert ping.wait(number, 30.0)
    bell.ring()
    bell.flush()
"""
    )
    player = start(
        script,
        *hung.attach_arguments(),
        *back.attach_arguments(),
        pass_fds=hung.descriptors() + back.descriptors(),
    )
    for number in range(1, 2001):
        hung.bell.ring()
        hung.bell.flush()
        assert back.bell.wait(number, 30.0)
    assert player.wait() == 0
    back.close()


def test_ctrl_c_interrupts_a_wait(hung: Hung, start: Start, until: Until) -> None:
    script = (
        ATTACH
        + """
try:
    bell.wait(1)
except KeyboardInterrupt:
    sys.exit(7)
"""
    )
    waiter = start(script, *hung.attach_arguments(), pass_fds=hung.descriptors())
    until(hung.has_waiter)
    waiter.send_signal(signal.SIGINT)
    assert waiter.wait(10) == 7


def test_handled_signal_does_not_end_a_wait(
    hung: Hung, start: Start, until: Until
) -> None:
    script = (
        ATTACH
        + """
import signal
signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
print(bell.wait(1))
"""
    )
    waiter = start(script, *hung.attach_arguments(), pass_fds=hung.descriptors())
    until(hung.has_waiter)
    waiter.send_signal(signal.SIGUSR1)
    assert waiter.stdout is not None
    assert waiter.stdout.readline() == "handled\n"
    hung.bell.ring()
    hung.bell.flush()
    assert waiter.stdout.readline() == "True\n"


def test_cut_lifeline_ends_a_wait(hung: Hung, until: Until) -> None:
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(hung.bell.wait(1)))
    waiter.start()
    until(hung.has_waiter)
    hung.words[doorbell.STOPPED] = 1
    waiter.join(10)
    assert answers == [False]


def test_ring_shows_at_the_latest_at_the_flush(hung: Hung) -> None:
    hung.bell.ring()
    assert hung.bell.wait(1, 0.0) == (hung.kind == "futex")
    hung.bell.flush()
    assert hung.bell.wait(1, 0.0)


def test_announcement_is_a_ring_that_the_flush_shows(hung: Hung) -> None:
    hung.bell.announce()
    hung.bell.flush()
    assert hung.bell.wait(1, 0.0)
    assert not hung.bell.wait(2, 0.0)


def test_ctrl_c_neither_loses_nor_doubles_a_ring(hung: Hung) -> None:
    moment, more = 0, True
    while more:
        moment += 1
        hung.bell.announce()
        with suppress(KeyboardInterrupt):
            more = at_moment(moment, hung.bell.flush)
        hung.bell.flush()
        assert hung.bell.wait(moment, 0.0)
        assert hung.bell.count == moment


def test_ctrl_c_in_a_wait_loses_no_ring(hung: Hung) -> None:
    moment, more = 0, True
    while more:
        moment += 1
        hung.bell.ring()
        hung.bell.flush()
        with suppress(KeyboardInterrupt):
            more = at_moment(moment, lambda: hung.bell.wait(moment, 1.0))  # noqa: B023
        assert hung.bell.wait(moment, 0.0)
        assert hung.bell.count == moment


def test_ctrl_c_before_a_full_pipe_neither_loses_nor_doubles_a_ring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "eventfd", raising=False)
    moment, more = 0, True
    while more:
        moment += 1
        hung = Hung("event")
        rings = 1
        with suppress(BlockingIOError):
            while os.write(hung.descriptors()[1], (1).to_bytes(8, sys.byteorder)):
                rings += 1
        hung.bell.announce()
        with suppress(KeyboardInterrupt):
            more = at_moment(moment, hung.bell.flush)
        hung.bell.flush()
        assert hung.bell.wait(rings, 0.0)
        assert hung.bell.count == rings
        hung.close()
    assert moment > 10


@pytest.mark.parametrize("elsewhere", [False, True])
def test_signal_handler_may_close_inside_a_flush(hung: Hung, elsewhere: bool) -> None:
    def close_and_ring() -> None:
        ringer.announce()
        ringer.flush()
        if elsewhere:  # as the ending of processes does, which must not be interrupted
            closing = threading.Thread(target=ringer.close)
            closing.start()
            closing.join()
        else:
            ringer.close()

    def ring(moment: int) -> None:
        ringer.ring()
        with suppress(ValueError):
            answers.append(at_moment(moment, ringer.flush, close_and_ring))

    rings, answers = 0, [True]
    while answers[-1]:
        held = hung.bell.descriptor
        descriptor = None if held is None else os.dup(held)
        ringer = doorbell.attach(hung.block.memory, 0, descriptor, hung.kind)
        ringing = threading.Thread(target=ring, args=(len(answers),), daemon=True)
        ringing.start()
        ringing.join(10)
        assert not ringing.is_alive()
        rings += 2 if answers[-1] else 1
        ringer.close()
        assert hung.bell.wait(rings, 0.0)
        assert hung.bell.count == rings


def test_closed_bell_refuses_to_ring_or_count(hung: Hung) -> None:
    before = open_descriptors()
    held = 0 if hung.bell.descriptor is None else 1
    hung.bell.close()
    hung.bell.close()
    assert open_descriptors() == before - held
    with pytest.raises(ValueError):
        hung.bell.ring()
    with pytest.raises(ValueError):
        _ = hung.bell.count
    assert not hung.bell.sleeps_here


def test_bell_keeps_the_memory_of_a_closed_block(hung: Hung) -> None:
    hung.block.close()
    hung.bell.ring()
    hung.bell.flush()
    assert hung.bell.wait(1, 0.0)


@needs_extension
def test_futex_closed_under_its_waiter_stays_safe(until: Until) -> None:
    hung = Hung("futex")
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(hung.bell.wait(1, 0.5)))
    waiter.start()
    until(hung.has_waiter)
    hung.bell.close()
    hung.block.close()
    waiter.join(10)
    assert answers == [False]


@needs_extension
@pytest.mark.parametrize("offset", [-64, 2, 8, 2**62])
def test_futex_outside_its_block_is_refused(offset: int) -> None:
    block = Block.create(CACHE_LINE_BYTES, shared=False)
    with pytest.raises(ValueError, match=f"at offset {offset} of a block of 64 bytes"):
        doorbell.create(block.memory, offset, "futex")


def test_environment_variable_chooses_the_python_twin(start: Start) -> None:
    script = "from corral.engine.transport import doorbell; print(doorbell.KIND)"
    assert start(script, CORRAL_PURE_PYTHON="1").communicate()[0] == "event\n"
    best = "futex" if doorbell.HAS_FUTEX else "event"
    assert start(script, CORRAL_PURE_PYTHON="0").communicate()[0] == f"{best}\n"
