"""Whether a worker has died or is late, and what is told about it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from corral.engine.executors.contract import Assignment
from corral.engine.executors.reaping import WorkerHealth, current_command
from corral.engine.executors.worker_link import WorkerLink
from corral.engine.executors.worker_output import WorkerOutput
from corral.engine.faults import stacks
from corral.engine.layout.plan import (
    ANSWERING,
    BUSY_SINCE,
    CLOSING,
    CONSTRUCTING,
    CURRENT_COMMAND,
    CURRENT_SLOT,
    NO_SLOT,
    READING,
    RESETTING,
    STEPPING,
    WORKER_ENDED,
    ControlViews,
    plan_control,
)
from corral.engine.transport.block import Block
from corral.engine.worker.commands import ShardOptions
from corral.errors import Fault, FaultError

SHARDS = [range(3), range(3, 5)]
SLEEPS = "import sys, time; print(flush=True); time.sleep(100)"


class Watched:
    """The health of two workers, seen through a control part of their own."""

    def __init__(self, stack: ExitStack, serving: bool = True, **limits: Any) -> None:
        plan = plan_control(5, 2, 5)
        block = Block.create(plan.size, shared=False)
        stack.callback(block.close)
        output = WorkerOutput()
        stack.callback(output.close)
        answers = stacks.open_file()
        stack.callback(os.close, answers)
        memory_limit = limits.pop("memory_limit", None)
        options = ShardOptions(77, memory_limit=memory_limit)
        assignment = Assignment([print] * 5, SHARDS, options, **limits)
        self.control = ControlViews(plan, block.memory)
        self.control.stop[:, 0] = WORKER_ENDED  # nothing of theirs is looked for
        self.health = WorkerHealth(assignment, self.control, answers, output)
        if serving:
            self.health.watch(SHARDS)

    def link(self, worker: int, process: Any, sent: int = 0) -> WorkerLink:
        """A worker that was sent so many commands."""
        bell: Any = None
        mark = f"mark-{worker}"
        return WorkerLink(worker, self.control, bell, None, process, mark, sent)

    def at(self, worker: int, doing: int, slot: int, seconds: float) -> None:
        """A worker says that it has been at something for so long."""
        line = self.control.vitals[worker]
        line[CURRENT_COMMAND], line[CURRENT_SLOT] = doing, slot
        line[BUSY_SINCE] = time.perf_counter() - seconds


@pytest.fixture
def resources() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def sleeper(resources: ExitStack) -> subprocess.Popen[bytes]:
    """A process that leads a group, as a worker does."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", SLEEPS],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    resources.enter_context(process)  # waits for it
    resources.callback(process.kill)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_death_before_workers_serve_is_one_of_the_start(resources, sleeper) -> None:
    watched = Watched(resources, serving=False)
    os.kill(sleeper.pid, signal.SIGTERM)
    sleeper.wait()
    fault = watched.health.death(watched.link(1, sleeper))
    assert (fault.kind, fault.command, fault.slot, fault.worker) == (
        "died",
        "start",
        None,
        1,
    )
    assert (fault.exit_code, fault.signal_name) == (-15, "SIGTERM")
    assert (fault.seed, fault.others) == (77, 0)
    watched.at(1, CONSTRUCTING, 4, 0.0)
    fault = watched.health.death(watched.link(1, sleeper))
    assert (fault.command, fault.slot, fault.seed) == ("construct", 4, 77)


def test_a_replacement_that_dies_names_the_slot_that_it_built(resources, sleeper):
    watched = Watched(resources)
    os.kill(sleeper.pid, signal.SIGTERM)
    sleeper.wait()
    for doing, slot, named in ((READING, 0, 3), (CONSTRUCTING, 4, 4)):
        watched.at(1, doing, slot, 0.0)
        fault = watched.health.death_of_replacement(watched.link(1, sleeper))
        assert (fault.command, fault.slot, fault.seed) == ("start", named, None)


def test_a_death_is_that_of_the_slot_the_worker_was_at(resources, sleeper) -> None:
    watched = Watched(resources)
    watched.at(1, RESETTING, 1, 0.0)
    fault = watched.health.death(watched.link(1, sleeper))
    assert sleeper.returncode == -9  # what was left of it was ended
    assert (fault.command, fault.slot) == ("reset", 4)
    assert fault.seed is None and fault.pid == sleeper.pid


def test_a_worker_between_two_slots_is_at_none() -> None:
    with ExitStack() as stack:
        watched = Watched(stack)
        watched.at(0, STEPPING, NO_SLOT, 0.0)
        link = watched.link(0, None)
        assert current_command(link, SHARDS[0]) == ("step", None)
        watched.at(0, ANSWERING, 2, 0.0)
        assert current_command(link, SHARDS[0]) == ("call", 2)
        assert current_command(link, range(0)) == ("call", None)


def test_a_worker_past_its_deadline_is_ended_and_told_as_hung(
    resources, sleeper
) -> None:
    watched = Watched(resources, step_timeout=2.0, reset_timeout=60.0)
    health, link = watched.health, watched.link(0, sleeper, sent=1)
    watched.at(0, STEPPING, 2, 1.0)
    assert health.lateness(link) is None
    watched.at(0, RESETTING, 2, 30.0)  # resets have a limit of their own
    assert health.lateness(link) is None
    watched.at(0, ANSWERING, 2, 1000.0)  # and questions none
    assert health.lateness(link) is None
    assert sleeper.poll() is None
    watched.at(0, STEPPING, 2, 3.0)
    fault = health.lateness(link)
    assert fault is not None and sleeper.returncode is not None
    assert (fault.kind, fault.slot, fault.limit) == ("hung", 2, 2.0)
    assert fault.error_text == "longer than 2 s" and fault.stack
    assert fault.exit_code is None and fault.signal_name is None


def test_a_worker_that_leaves_a_command_untouched_is_late_by_the_steps_limit(
    resources, sleeper
) -> None:
    watched = Watched(resources, step_timeout=0.0)
    health, consumed = watched.health, watched.control.consumed
    link = watched.link(0, sleeper)

    def fault_after(sent: int) -> Fault | None:
        link.sent = sent
        return health.lateness(link)

    watched.control.vitals[:, BUSY_SINCE] = 0.0
    assert fault_after(0) is None  # nothing was asked of it
    assert fault_after(1) is None  # its time begins
    consumed[0] = 1
    assert fault_after(2) is None  # another command: from here
    consumed[0] = 2
    assert fault_after(2) is None  # it has taken up all
    assert fault_after(3) is None
    fault = fault_after(3)
    assert fault is not None and fault.kind == "hung"


def test_a_worker_that_was_replaced_starts_with_a_clean_slate(
    resources, sleeper
) -> None:
    watched = Watched(resources, step_timeout=0.0)
    assert watched.health.lateness(watched.link(0, sleeper, sent=1)) is None
    assert watched.health.lateness(watched.link(0, sleeper, sent=1)) is None


@pytest.mark.parametrize(
    ("limits", "watches"),
    [({}, False), ({"item_timeout": 1.0}, True), ({"memory_limit": 1 << 20}, True)],
)
def test_without_a_limit_nobody_looks_at_the_clock(resources, limits, watches) -> None:
    watched = Watched(resources, serving=False, **limits)
    assert not watched.health.has_deadlines
    watched.health.watch(SHARDS)
    assert watched.health.has_deadlines is watches


def test_a_worker_that_makes_room_may_not_hang_in_its_last_close(
    resources, sleeper
) -> None:
    watched = Watched(resources, memory_limit=1 << 20, close_timeout=1.0)
    watched.at(0, CLOSING, NO_SLOT, 5.0)
    fault = watched.health.lateness(watched.link(0, sleeper))
    assert fault is not None and (fault.command, fault.limit) == ("close", 1.0)


def test_only_a_worker_that_is_at_something_is_waited_for(resources, sleeper) -> None:
    watched = Watched(resources)
    link = watched.link(0, sleeper)
    assert not watched.health.is_closing(link)
    watched.at(0, CLOSING, NO_SLOT, 0.0)
    assert watched.health.is_closing(link)
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED)
    assert not watched.health.is_closing(link)


def test_a_shard_that_could_not_be_built_is_a_fault_of_the_start(resources) -> None:
    health = Watched(resources, serving=False).health
    assert health.checked(0, "bound") == "bound"
    fault = Fault("raised", "construct", slot=1, worker=0, error_text="no licence")
    with pytest.raises(FaultError, match="no licence") as caught:
        health.checked(0, fault)
    assert caught.value.fault.kind == "start"


def test_who_does_not_build_in_time_is_asked_for_its_stacks(resources, sleeper) -> None:
    watched = Watched(resources, serving=False, start_timeout=4.0)
    fault = watched.health.build_timeout(watched.link(1, sleeper))
    assert (fault.kind, fault.command, fault.limit) == ("hung", "start", 4.0)
    assert fault.slot is None
    watched.at(1, CONSTRUCTING, 3, 0.0)
    fault = watched.health.build_timeout(watched.link(1, sleeper))
    assert (fault.kind, fault.command, fault.slot) == ("hung", "construct", 3)
    assert fault.stack and fault.seed == 77
