"""The end of a worker process: seen, waited for, and made sure of with its children.

`WorkerHealth` says whether a worker has died or is at one thing for longer than it may
take, and makes the fault of it. It asks the system and the worker's line of `vitals`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from corral.engine.executors.contract import Assignment
from corral.engine.executors.worker_output import WorkerOutput
from corral.engine.faults import stacks
from corral.engine.faults.report import error_for, signal_name
from corral.engine.layout.plan import (
    ANSWERING,
    BUSY_SINCE,
    CLOSING,
    CONSTRUCTING,
    CURRENT_COMMAND,
    CURRENT_SLOT,
    NO_SLOT,
    RESETTING,
    STEPPING,
    WORKER_ENDED,
    ControlViews,
)
from corral.engine.transport import child_processes
from corral.engine.worker.letters import BuildFailed
from corral.errors import Fault

SILENT_EXIT_SECONDS = 2.0
"""Seconds that a worker may do nothing about being asked to end."""
KILLED_EXIT_SECONDS = 2.0
"""The same for the kernel, after SIGKILL: it may hold one that waits for a device."""
COMMAND_NAMES = {
    STEPPING: "step",
    RESETTING: "reset",
    CONSTRUCTING: "construct",
    ANSWERING: "call",
    CLOSING: "close",
}
"""How a fault names what a worker was doing."""


class WorkerHealth:
    """Whether workers live and are in time; the faults of those that are not.

    Args:
        assignment: its deadlines and seed.
        control: where workers say what they are at.
        stack: the descriptor of the file that a hung process writes its stacks to.
        output: what workers have printed.
        mark: by worker, the mark of the processes that its envs have started.
    """

    def __init__(
        self,
        assignment: Assignment,
        control: ControlViews,
        stack: int,
        output: WorkerOutput,
        mark: Callable[[int], str],
    ) -> None:
        self.has_deadlines = False
        """Whether a worker that serves may be late."""
        self._assignment = assignment
        self._control = control
        self._stack = stack
        self._output = output
        self._mark = mark
        self._shards: list[range] = []
        """By worker, once they serve."""
        self._limits = {
            STEPPING: assignment.step_timeout,
            RESETTING: assignment.reset_timeout,
            CONSTRUCTING: assignment.start_timeout,
            ANSWERING: assignment.item_timeout,
        }
        self._unresponsive: dict[int, tuple[int, float]] = {}
        """Which command a worker was seen to leave untouched, and since when."""

    def watch(self, shards: list[range]) -> None:
        """From now on the workers serve these slots, and have to be in time."""
        self._shards = shards
        limits = [*self._limits.values(), self._assignment.options.memory_limit]
        # One that makes room for another may hang in its last `close`.
        self.has_deadlines = any(limit is not None for limit in limits)
        self._limits[CLOSING] = self._assignment.close_timeout

    def forget(self, worker: int) -> None:
        """Another worker comes in its place."""
        self._unresponsive.pop(worker, None)

    def end(self, worker: int, process: subprocess.Popen[bytes]) -> int:
        """End a worker with all that its envs have started; returns the exit code."""
        code = end(process)
        if self._control.stop[worker, 0] != WORKER_ENDED:
            child_processes.end_marked(self._mark(worker))
        return code

    def death(self, worker: int, process: subprocess.Popen[bytes]) -> Fault:
        """The fault of a worker that has ended, or is ended now."""
        code = self.end(worker, process)
        command, slot, slots = "start", None, 0
        if self._shards:
            shard = self._shards[worker]
            command, slot = current_command(self._control, worker, shard)
            slots = len(shard)
        return Fault(
            kind="died",
            command=command,
            slot=slot,
            worker=worker,
            others=slots - (slot is not None),
            pid=process.pid,
            seed=None if self._shards else self._assignment.seed,
            exit_code=code,
            signal_name=signal_name(code),
            output=self._output.tail(worker),
        )

    def lateness(
        self, worker: int, process: subprocess.Popen[bytes], sent: int
    ) -> Fault | None:
        """The fault of a worker that overran a deadline, which ends it.

        Args:
            worker: which.
            process: its.
            sent: how many commands it was sent.
        """
        limit = self._overrun(worker, sent)
        if limit is None:
            return None
        stack = stacks.ask_for_stacks(process.pid, self._stack)
        return replace(
            self.death(worker, process),
            kind="hung",
            exit_code=None,
            signal_name=None,
            stack=stack,
            limit=limit,
            error_text=f"longer than {limit:g} s",
        )

    def _overrun(self, worker: int, sent: int) -> float | None:
        """The limit that a worker is past."""
        now = time.perf_counter()
        since, doing = self._control.vitals[
            worker, [BUSY_SINCE, CURRENT_COMMAND]
        ].tolist()
        taken = int(self._control.consumed[worker][0])
        if since or sent == taken:
            self._unresponsive.pop(worker, None)
        else:  # it has not noticed that it is asked to do something
            # It may have been seen like this before, with another command since.
            if self._unresponsive.get(worker, (-1, now))[0] != taken:
                self._unresponsive[worker] = taken, now
            since = self._unresponsive[worker][1]
            doing = STEPPING if self._assignment.slots else ANSWERING
        limit = self._limits.get(doing)
        if not since or limit is None or now - since <= limit:
            return None
        self._unresponsive.pop(worker, None)
        return limit

    def is_closing(self, worker: int, pid: int) -> bool:
        """Whether a worker that was asked to close can be seen to do anything."""
        busy = self._control.vitals[worker, BUSY_SINCE] or not self._shards
        return bool(busy) and not stacks.is_stopped(pid)

    def build_timeout(self, worker: int, pid: int) -> Fault:
        """The fault of a worker that did not build its envs in time."""
        limit = self._assignment.start_timeout
        return Fault(
            kind="hung",
            command="construct",
            worker=worker,
            pid=pid,
            seed=self._assignment.seed,
            limit=limit,
            error_text=f"longer than {limit:g} s",
            output=self._output.tail(worker),
            stack=stacks.ask_for_stacks(pid, self._stack),
        )

    def checked(self, worker: int, answer: Any) -> Any:
        """What a worker answered that was to build something; raises if it failed."""
        if isinstance(answer, BuildFailed):
            output = self._output.tail(worker)
            raise error_for(replace(answer.fault, kind="start", output=output))
        return answer


def current_command(
    control: ControlViews, worker: int, shard: range
) -> tuple[str, int | None]:
    """The command a worker was last seen at, and the slot, if it was at any."""
    vitals = control.vitals[worker].tolist()
    command = COMMAND_NAMES.get(vitals[CURRENT_COMMAND], "step")
    at = int(vitals[CURRENT_SLOT])
    return command, None if at == NO_SLOT or not shard else shard[at]


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Look without reaping: while its entry stands, its group cannot be another's."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, process.pid, flags) is not None
    except ChildProcessError:  # somebody else waited for it
        return True


def wait_until(process: subprocess.Popen[bytes], deadline: float) -> None:
    """Give a process that long to end by itself."""
    wait_for_all({0: process}, deadline, lambda _: True)


def wait_for_all(
    processes: Mapping[int, subprocess.Popen[bytes]],
    deadline: float,
    answers: Callable[[int], bool],
) -> None:
    """Give processes that long to end by themselves; those that are silent, less.

    Args:
        processes: by worker.
        deadline: by time.monotonic.
        answers: whether a worker is seen to do something about it right now.
    """
    left = dict(processes)
    heard = dict.fromkeys(left, time.monotonic())
    delay = 0.0005
    while left:
        for worker, process in list(left.items()):
            if has_ended(process):
                del left[worker]
        now = time.monotonic()
        if not left or now >= deadline:
            return
        for worker in list(left):
            if answers(worker):
                heard[worker] = now
            elif now - heard[worker] >= SILENT_EXIT_SECONDS:
                kill(left.pop(worker))
        time.sleep(delay)
        delay = min(2 * delay, 0.005)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a worker, its group and its offspring; does not wait."""
    if process.returncode is None:
        children = child_processes.children_of(process.pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        child_processes.end_all(children)


def end(process: subprocess.Popen[bytes]) -> int:
    """Kill what is left of the worker's group, then reap; returns the exit code."""
    kill(process)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(KILLED_EXIT_SECONDS)
    return -signal.SIGKILL  # as it will be
