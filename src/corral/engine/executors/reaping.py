"""The end of a worker process: noticed, waited for, and enforced with its children.

`WorkerHealth` finds workers that have died or overrun a deadline, and makes the faults.
It reads the process table and the worker's line of `vitals`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from corral.engine.executors.contract import Assignment
from corral.engine.executors.worker_link import WorkerLink
from corral.engine.executors.worker_output import WorkerOutput
from corral.engine.faults import stacks
from corral.engine.faults.report import error_for, signal_name
from corral.engine.layout import plan
from corral.engine.transport import child_processes
from corral.errors import Fault

# Seconds that a worker may take to react when it is asked to end.
SILENT_EXIT_SECONDS = 2.0
# The same for the kernel after SIGKILL: a process may be waiting for a device.
KILLED_EXIT_SECONDS = 2.0
# How a fault names the current command of a worker.
COMMAND_NAMES = {
    plan.STEPPING: "step",
    plan.RESETTING: "reset",
    plan.CONSTRUCTING: "construct",
    plan.ANSWERING: "call",
    plan.CLOSING: "close",
    plan.DECIDING: "decide",
}


class WorkerHealth:
    """Whether workers are alive and in time; the faults of those that are not.

    Args:
        assignment: deadlines and seed.
        control: workers write their current command there.
        stack: descriptor of the file that a hung process writes its stacks to.
        output: the workers' output.
    """

    def __init__(
        self,
        assignment: Assignment,
        control: plan.ControlViews,
        stack: int,
        output: WorkerOutput,
    ) -> None:
        self.assignment, self._control = assignment, control
        self._stack, self._output = stack, output
        # Whether a worker that serves may be late.
        self.has_deadlines = False
        # By worker, once they serve.
        self._shards: list[range] = []
        self._limits = {
            plan.STEPPING: assignment.step_timeout,
            plan.RESETTING: assignment.reset_timeout,
            plan.CONSTRUCTING: assignment.start_timeout,
            plan.ANSWERING: assignment.item_timeout,
            plan.DECIDING: assignment.step_timeout,
        }

    def watch(self, shards: list[range]) -> None:
        """The workers serve these slots now; deadlines hold."""
        self._shards = shards
        limits = [*self._limits.values(), self.assignment.options.memory_limit]
        # A worker that is retired may hang in its last `close`.
        self.has_deadlines = any(limit is not None for limit in limits)
        self._limits[plan.CLOSING] = self.assignment.close_timeout

    def end(self, link: WorkerLink) -> int:
        """End a worker and all processes that its envs have started; its exit code."""
        code = end(link.process)
        if not link.ended_in_order:
            child_processes.end_marked(link.mark)
        return code

    def shut_down(self, link: WorkerLink, seconds: float = SILENT_EXIT_SECONDS) -> None:
        """Let a worker close its envs, then end it; bounded."""
        link.mailbox.hang_up()
        wait_until(link.process, time.monotonic() + seconds)
        self.end(link)
        link.close()

    def end_all(self, links: Sequence[WorkerLink]) -> None:
        """End these workers and all processes that their envs have started."""
        for link in links:
            kill(link.process)
        for link in links:
            self.end(link)

    def death(self, link: WorkerLink) -> Fault:
        """End a worker that died or hangs; its fault."""
        fault = self._ended(link)
        if not self._shards:
            return self._while_building(fault)
        command, slot = current_command(link, self._shards[link.worker])
        return replace(fault, command=command, slot=slot)

    def death_of_replacement(self, link: WorkerLink) -> Fault:
        """End a worker that died before it took the place of another; its fault."""
        fault = self._while_building(self._ended(link))
        first = self._shards[link.worker].start
        slot = first if fault.slot is None else fault.slot
        return replace(fault, command="start", slot=slot, seed=None)

    def _ended(self, link: WorkerLink) -> Fault:
        code = self.end(link)
        return Fault(
            kind="died",
            command="start",
            worker=link.worker,
            pid=link.process.pid,
            exit_code=code,
            signal_name=signal_name(code),
            output=self._output.tail(link.worker),
        )

    def _while_building(self, fault: Fault) -> Fault:
        """The fault of a worker that does not serve yet: which env it was building."""
        vitals = self._control.vitals[fault.worker].tolist()
        fault = replace(fault, seed=self.assignment.seed)
        if vitals[plan.CURRENT_COMMAND] != plan.CONSTRUCTING:
            return fault  # Python, imports, worker_init or per_worker
        at = int(vitals[plan.CURRENT_SLOT])
        slot = None if at == plan.NO_SLOT else at
        return replace(fault, command="construct", slot=slot)

    def lateness(self, link: WorkerLink) -> Fault | None:
        """End a worker that overran a deadline; its fault, or None if it is in time."""
        limit = self._overrun(link)
        if limit is None:
            return None
        stack = stacks.ask_for_stacks(link.process.pid, self._stack)
        return replace(
            self.death(link),
            kind="hung",
            exit_code=None,
            signal_name=None,
            stack=stack,
            limit=limit,
            error_text=f"longer than {limit:g} s",
        )

    def _overrun(self, link: WorkerLink) -> float | None:
        """The limit that a worker has overrun."""
        now, taken = time.perf_counter(), link.consumed[0]
        vitals = self._control.vitals[link.worker].tolist()
        since, doing = vitals[plan.BUSY_SINCE], vitals[plan.CURRENT_COMMAND]
        if not since and link.sent != taken:  # it has not taken its next command
            if link.untouched[0] != taken:  # another one than last time
                link.untouched = taken, now
            since = link.untouched[1]
            doing = plan.STEPPING if self.assignment.slots else plan.ANSWERING
        else:
            link.untouched = -1, now
        limit = self._limits.get(doing)
        if limit is None and since:  # only a process that runs may take any time
            limit = self._limits[plan.STEPPING]
            late = limit is not None and now - since > limit
            return limit if late and stacks.is_stopped(link.process.pid) else None
        overrun = since and limit is not None and now - since > limit
        return limit if overrun else None

    def is_closing(self, link: WorkerLink) -> bool:
        """Whether a worker that was asked to close is doing something."""
        busy = self._control.vitals[link.worker, plan.BUSY_SINCE] or not self._shards
        return bool(busy) and not stacks.is_stopped(link.process.pid)

    def build_timeout(self, link: WorkerLink) -> Fault:
        """The fault of a worker that did not build its envs in time."""
        limit, pid = self.assignment.start_timeout, link.process.pid
        fault = Fault(
            kind="hung",
            command="start",
            worker=link.worker,
            pid=pid,
            limit=limit,
            error_text=f"longer than {limit:g} s",
            output=self._output.tail(link.worker),
            stack=stacks.ask_for_stacks(pid, self._stack),
        )
        return self._while_building(fault)

    def checked(self, worker: int, answer: Any) -> Any:
        """The answer of a worker that builds something; raises if that failed."""
        if isinstance(answer, Fault):
            output = self._output.tail(worker)
            raise error_for(replace(answer, kind="start", output=output))
        return answer


def current_command(link: WorkerLink, shard: range) -> tuple[str, int | None]:
    """A worker's current or last command, and its slot, if any."""
    vitals = link.control.vitals[link.worker].tolist()
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
    wait_for_all([process], deadline, lambda _: True)


def wait_for_all(
    processes: Iterable[subprocess.Popen[bytes]],
    deadline: float,
    answers: Callable[[subprocess.Popen[bytes]], bool],
) -> None:
    """Wait for processes to end by themselves; kill those that do not react.

    Args:
        processes: workers that were asked to end.
        deadline: by time.monotonic.
        answers: whether a worker is busy ending right now.
    """
    heard = dict.fromkeys(processes, time.monotonic())
    delay = 0.0005
    while True:
        heard = {one: last for one, last in heard.items() if not has_ended(one)}
        now = time.monotonic()
        if not heard or now >= deadline:
            return
        for process, last in list(heard.items()):
            if answers(process):
                heard[process] = now
            elif now - last >= SILENT_EXIT_SECONDS:
                del heard[process]
                kill(process)
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
