"""A worker that takes another's place: started in a thread, told all, or given up."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from corral.engine.executors.signalled import ring_for_lost_rings
from corral.engine.executors.spawn import Replacement
from corral.engine.executors.worker_link import WorkerLink
from corral.engine.transport import doorbell
from corral.engine.transport.mailbox import Mailbox, MailboxClosed
from corral.errors import Fault, FaultError
from tests.engine.executors.test_reaping import Watched

MESSAGES = tuple(pickle.dumps(name) for name in ("setup", "build", "bind"))
WAITS = "import sys; sys.stdin.read()"


class Spawned:
    """A process that does nothing, and its end of the mailbox in our hands."""

    def __init__(self, stack: ExitStack) -> None:
        control = Watched(stack).control
        near, far = Mailbox.pair()
        self.process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-S", "-c", WAITS],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        )
        stack.callback(self.process.kill)
        self.theirs = Mailbox(far)
        stack.callback(self.theirs.close)
        bell = doorbell.create(memoryview(bytearray(64)), 0)
        self.worker = WorkerLink(1, control, bell, Mailbox(near), self.process)
        stack.callback(self.worker.close)


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def replacement(
    resources: ExitStack, spawn: Any, timeout: float | None = 60.0, delay: float = 0.0
) -> Replacement:
    health = Watched(resources, start_timeout=timeout).health
    return Replacement(1, delay, spawn, MESSAGES, health)


def wait_for(one: Replacement) -> None:
    one.join()


def test_it_is_told_everything_in_order_and_then_put_in_place(resources) -> None:
    spawned = Spawned(resources)
    one = replacement(resources, lambda: spawned.worker)
    assert [spawned.theirs.fetch(), spawned.theirs.fetch()] == ["setup", "build"]
    spawned.theirs.post([])
    assert spawned.theirs.fetch() == "bind" and one.is_alive()
    spawned.theirs.post("bound")
    wait_for(one)
    assert one.result() is spawned.worker


def test_an_env_that_cannot_be_built_again_is_an_error_of_the_start(resources) -> None:
    spawned = Spawned(resources)
    spawned.process.stdin.close()  # ends by itself, as a worker without its envs
    fault = Fault("raised", "construct", slot=3, worker=1, error_text="no licence")
    spawned.theirs.post(fault)
    one = replacement(resources, lambda: spawned.worker)
    wait_for(one)
    with pytest.raises(FaultError, match="no licence") as caught:
        one.result()
    assert caught.value.fault.kind == "start"
    assert spawned.process.returncode is not None  # it was ended


def test_one_that_dies_on_the_way_says_so(resources) -> None:
    spawned = Spawned(resources)
    spawned.process.kill()
    spawned.theirs.close()
    one = replacement(resources, lambda: spawned.worker)
    wait_for(one)
    with pytest.raises(FaultError) as caught:
        one.result()
    fault = caught.value.fault
    assert (fault.kind, fault.command, fault.exit_code) == ("died", "start", -9)


def test_one_that_takes_too_long_is_killed(resources) -> None:
    spawned = Spawned(resources)
    one = replacement(resources, lambda: spawned.worker, timeout=0.01)
    wait_for(one)
    with pytest.raises(FaultError) as caught:
        one.result()
    assert (caught.value.fault.kind, caught.value.fault.limit) == ("hung", 0.01)
    assert spawned.process.returncode is not None


def test_a_system_that_refuses_is_told_with_the_worker(resources) -> None:
    def refused() -> WorkerLink:
        raise OSError(11, "no more processes")

    one = replacement(resources, refused)
    wait_for(one)
    with pytest.raises(FaultError, match=r"worker 1 .*no more processes"):
        one.result()


def test_one_that_is_cancelled_while_it_waits_is_never_started(resources) -> None:
    started = threading.Event()
    one = replacement(resources, started.set, delay=3600.0)
    one.cancel()
    one.end(time.monotonic() + 60.0)
    assert not one.is_alive() and not started.is_set()


def test_one_that_is_cancelled_on_its_way_is_ended(resources) -> None:
    spawned = Spawned(resources)
    one = replacement(resources, lambda: spawned.worker)
    spawned.theirs.fetch()
    one.cancel()
    spawned.process.stdin.close()
    with pytest.raises(MailboxClosed):
        while True:
            spawned.theirs.fetch()
    one.end(time.monotonic() + 60.0)
    assert not one.is_alive() and spawned.process.returncode is not None


@pytest.mark.parametrize(("rings", "expected"), [(3, 7), (7, 7), (9, 9)])
def test_rings_that_a_killed_worker_owes_are_rung_and_no_more(rings, expected) -> None:
    bell = doorbell.create(memoryview(bytearray(64)), 0)
    try:
        bell.ring(rings)
        bell.flush()
        assert bell.wait(rings, 0.0, 0.0)  # what was seen is what counts
        ring_for_lost_rings(bell, np.array([5, 2], np.uint32))
        assert bell.wait(expected, 0.0, 0.0) and bell.count == expected
    finally:
        bell.close()
