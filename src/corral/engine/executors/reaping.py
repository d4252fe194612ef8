"""The end of a worker process: noticed, waited for, and enforced with its children.

`WorkerHealth` finds workers that have died or overrun a deadline, and makes the faults.
It reads the process table and the worker's line of `vitals`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from corral.engine.executors.contract import Assignment
from corral.engine.executors.worker_output import WorkerOutput
from corral.engine.faults import stacks
from corral.engine.faults.report import error_for, signal_name
from corral.engine.layout import plan
from corral.engine.transport import child_processes
from corral.errors import Fault

SILENT_EXIT_SECONDS = 2.0
"""Seconds that a worker may take to react when it is asked to end."""
KILLED_EXIT_SECONDS = 2.0
"""The same for the kernel after SIGKILL: a process may be waiting for a device."""
COMMAND_NAMES = {
    plan.STEPPING: "step",
    plan.RESETTING: "reset",
    plan.CONSTRUCTING: "construct",
    plan.ANSWERING: "call",
    plan.CLOSING: "close",
}
"""How a fault names the current command of a worker."""


@dataclass
class WorkerHealth:
    """Whether workers are alive and in time; the faults of those that are not.

    Args:
        assignment: deadlines and seed.
        control: workers write their current command there.
        stack: descriptor of the file that a hung process writes its stacks to.
        output: the workers' output.
        mark: by worker, the mark of the processes that its envs have started.
    """

    assignment: Assignment
    control: plan.ControlViews
    stack: int
    output: WorkerOutput
    mark: Callable[[int], str]
    has_deadlines: bool = False
    """Whether a worker that serves may be late."""
    _shards: list[range] = field(default_factory=list)
    """By worker, once they serve."""
    _unresponsive: dict[int, tuple[int, float]] = field(default_factory=dict)
    """By worker: the command that it has not taken yet, and since when."""

    def __post_init__(self) -> None:
        self._limits = {
            plan.STEPPING: self.assignment.step_timeout,
            plan.RESETTING: self.assignment.reset_timeout,
            plan.CONSTRUCTING: self.assignment.start_timeout,
            plan.ANSWERING: self.assignment.item_timeout,
        }

    def watch(self, shards: list[range]) -> None:
        """The workers serve these slots now; deadlines hold."""
        self._shards = shards
        limits = [*self._limits.values(), self.assignment.options.memory_limit]
        # A worker that is retired may hang in its last `close`.
        self.has_deadlines = any(limit is not None for limit in limits)
        self._limits[plan.CLOSING] = self.assignment.close_timeout

    def forget(self, worker: int) -> None:
        """The worker is replaced."""
        self._unresponsive.pop(worker, None)

    def end(self, worker: int, process: subprocess.Popen[bytes]) -> int:
        """End a worker and all processes that its envs have started; its exit code."""
        code = end(process)
        if self.control.stop[worker, 0] != plan.WORKER_ENDED:
            child_processes.end_marked(self.mark(worker))
        return code

    def death(self, worker: int, process: subprocess.Popen[bytes]) -> Fault:
        """End a worker that died or hangs; its fault."""
        code = self.end(worker, process)
        fault = Fault(
            kind="died",
            command="start",
            worker=worker,
            pid=process.pid,
            exit_code=code,
            signal_name=signal_name(code),
            output=self.output.tail(worker),
        )
        if not self._shards:
            return replace(fault, seed=self.assignment.seed)
        shard = self._shards[worker]
        command, slot = current_command(self.control, worker, shard)
        others = len(shard) - (slot is not None)
        return replace(fault, command=command, slot=slot, others=others)

    def lateness(
        self, worker: int, process: subprocess.Popen[bytes], sent: int
    ) -> Fault | None:
        """End a worker that overran a deadline; its fault, or None if it is in time.

        Args:
            worker: its number.
            process: its process.
            sent: how many commands it was sent.
        """
        limit = self._overrun(worker, sent)
        if limit is None:
            return None
        stack = stacks.ask_for_stacks(process.pid, self.stack)
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
        """The limit that a worker has overrun."""
        now = time.perf_counter()
        since, doing = self.control.vitals[
            worker, [plan.BUSY_SINCE, plan.CURRENT_COMMAND]
        ].tolist()
        taken = int(self.control.consumed[worker][0])
        if since or sent == taken:
            self._unresponsive.pop(worker, None)
        else:  # it has not taken its next command
            # The count starts anew if that is another command than last time.
            if self._unresponsive.get(worker, (-1, now))[0] != taken:
                self._unresponsive[worker] = taken, now
            since = self._unresponsive[worker][1]
            doing = plan.STEPPING if self.assignment.slots else plan.ANSWERING
        limit = self._limits.get(doing)
        if not since or limit is None or now - since <= limit:
            return None
        self._unresponsive.pop(worker, None)
        return limit

    def is_closing(self, worker: int, pid: int) -> bool:
        """Whether a worker that was asked to close is doing something."""
        busy = self.control.vitals[worker, plan.BUSY_SINCE] or not self._shards
        return bool(busy) and not stacks.is_stopped(pid)

    def build_timeout(self, worker: int, pid: int) -> Fault:
        """The fault of a worker that did not build its envs in time."""
        limit = self.assignment.start_timeout
        return Fault(
            kind="hung",
            command="construct",
            worker=worker,
            pid=pid,
            seed=self.assignment.seed,
            limit=limit,
            error_text=f"longer than {limit:g} s",
            output=self.output.tail(worker),
            stack=stacks.ask_for_stacks(pid, self.stack),
        )

    def checked(self, worker: int, answer: Any) -> Any:
        """The answer of a worker that builds something; raises if that failed."""
        if isinstance(answer, Fault):
            output = self.output.tail(worker)
            raise error_for(replace(answer, kind="start", output=output))
        return answer


def current_command(
    control: plan.ControlViews, worker: int, shard: range
) -> tuple[str, int | None]:
    """A worker's current or last command, and its slot, if any."""
    vitals = control.vitals[worker].tolist()
    command = COMMAND_NAMES.get(vitals[plan.CURRENT_COMMAND], "step")
    at = int(vitals[plan.CURRENT_SLOT])
    return command, None if at == plan.NO_SLOT or not shard else shard[at]


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Look without reaping: until then, no other group gets its number."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return process.poll() is not None
    try:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, process.pid, flags) is not None
    except ChildProcessError:  # other code has reaped it
        return True


def wait_until(process: subprocess.Popen[bytes], deadline: float) -> None:
    """Wait for a process to end by itself, until the deadline."""
    wait_for_all({0: process}, deadline, lambda _: True)


def wait_for_all(
    processes: Mapping[int, subprocess.Popen[bytes]],
    deadline: float,
    answers: Callable[[int], bool],
) -> None:
    """Wait for processes to end by themselves; kill those that do not react.

    Args:
        processes: by worker.
        deadline: by time.monotonic.
        answers: whether a worker is busy ending right now.
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
    """Kill a worker, its group and its children; does not wait."""
    if process.returncode is None:
        children = child_processes.children_of(process.pid)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for child in children:
            child.kill()


def end(process: subprocess.Popen[bytes]) -> int:
    """Kill the worker's group, then reap; returns the exit code."""
    kill(process)
    with suppress(subprocess.TimeoutExpired):
        return process.wait(KILLED_EXIT_SECONDS)
    return -signal.SIGKILL  # as it will be
