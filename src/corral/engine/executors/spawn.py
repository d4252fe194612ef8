"""How a worker process is started: what it inherits and is sent; and replaced.

parent ── Popen(python -c bootstrap) ──► worker: own session, SIGINT ignored
             inherited: block, mailbox, bells, lifeline, log; nothing else

A thread starts a worker that replaces another, and sends it what the worker before it
knew, so that the others and the caller need not wait. The caller's thread installs it
between two waits.
"""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import spawn
from typing import Any

from corral.engine.executors.contract import Assignment
from corral.engine.executors.reaping import (
    SILENT_EXIT_SECONDS,
    WorkerHealth,
    kill,
    wait_until,
)
from corral.engine.executors.starting import start_errors
from corral.engine.executors.worker_link import WorkerLink
from corral.engine.executors.worker_output import WorkerOutput
from corral.engine.faults.report import error_for
from corral.engine.layout.plan import CACHE_LINE_BYTES, ControlPlan, ControlViews
from corral.engine.transport import child_processes, descriptors, doorbell
from corral.engine.transport.block import Block
from corral.engine.transport.lifeline import Lifeline
from corral.engine.transport.mailbox import Mailbox, MailboxClosed, MailboxTimeout
from corral.engine.transport.shared_arrays import SharedArrays
from corral.engine.worker import commands, main, serialization
from corral.errors import CorralError


def descriptors_for(workers: int) -> int:
    """How many descriptors the parent of so many workers opens; a test counts them."""
    # 13: two blocks and one of shared arrays (of each, mmap keeps a copy), lifeline,
    # stacks, output, the parent's bell. 8: the worker's ends until it has them, and
    # what Popen opens meanwhile. Each worker has a mailbox, stdout, stderr, log, bell.
    return 13 + 8 + workers * (4 + (doorbell.KIND == "event"))


# What the user gives for all workers.
_FUNCTIONS = ("worker_init", "per_worker")


def packed(assignment: Assignment) -> Assignment:
    """The same with the user's functions pickled; raises if one cannot be."""
    pack, options = serialization.pack, assignment.options
    pack(options.sample_task, "sample_task")
    pack(options.task_by, "task_by")
    for slot, factory in enumerate(assignment.factories):
        if slot == 0 or factory is not assignment.factories[slot - 1]:
            pack(factory, f"the factory of slot {slot}")
    functions: dict[str, Any] = {
        name: serialization.Unpacked(pack(getattr(assignment, name), name))
        for name in _FUNCTIONS
        if getattr(assignment, name) is not None
    }
    return replace(assignment, **functions)


def setup_message(control: ControlPlan) -> bytes:
    """The first message, the same for every worker."""
    return pickle.dumps(
        commands.ProcessSetup(
            argv=serialization.portable_argv(),
            log_levels=serialization.pack_log_levels(),
            registry=serialization.pack_registry(),
            control=control,
            bell_kind=doorbell.KIND,
        )
    )


@dataclass(slots=True)
class Inheritance:
    """What all workers of a pool inherit, and how they are started with it.

    Attributes:
        token: What the marks of all workers begin with; see
            `transport.child_processes`.
    """

    assignment: Assignment
    block: Block
    control: ControlViews
    parents_bell: doorbell.Doorbell
    lifeline: Lifeline
    stack: int
    shared: SharedArrays | None
    output: WorkerOutput
    token: str

    def spawn(self, worker: int, generation: int) -> WorkerLink:
        """Start one process; if that fails, close everything that was opened for it.

        Raises:
            StartError: the system refuses.
        """
        assignment, control = self.assignment, self.control
        mark = f"{self.token}.{worker}.{generation}."
        with (
            start_errors(assignment.seed, worker),
            ExitStack() as ours,
            ExitStack() as theirs,
        ):
            bell = doorbell.create(control.memory, control.bell_offset(worker))
            ours.callback(bell.close)
            near, far = Mailbox.pair()
            ours.callback(near.close)
            theirs.callback(far.close)
            link = WorkerLink(worker, control, bell, Mailbox(near), mark=mark)
            pipes = []
            for _ in ("stdout", "stderr", "log"):
                pipes.append(os.pipe())
                ours.callback(os.close, pipes[-1][0])
                theirs.callback(os.close, pipes[-1][1])
            reads, writes = zip(*pipes, strict=True)
            arguments, inherited = self._arguments_for(link, far.fileno(), writes[2])
            link.process = _popen(
                # ascii, since the locale may change other characters.
                [ascii(serialization.absolute_path()), ascii(arguments)],
                stdout=writes[0],
                stderr=writes[1],
                pass_fds=inherited,
                env=serialization.environment(
                    assignment.threads_per_worker, assignment.device(worker)
                )
                | {child_processes.MARK_VARIABLE: mark},
            )
            ours.pop_all()
            self.output.add(worker, *reads)
        return link

    def _arguments_for(
        self, link: WorkerLink, mailbox: int, log: int
    ) -> tuple[dict[str, Any], list[int]]:
        """The arguments of a worker's `main`, and the descriptors that it inherits."""
        inherited = {
            "block": self.block.descriptor,
            "mailbox": mailbox,
            "lifeline_descriptor": self.lifeline.read_descriptor,
            "log": log,
            "stack": self.stack,
        }
        bells = (link.bell.descriptor, self.parents_bell.descriptor)
        stop = self.control.plan.fields["stop"].offset
        arguments = {
            "worker": link.worker,
            "control_size": self.block.size,
            "bells": [descriptor for descriptor in bells if descriptor is not None],
            "stop_offset": stop + CACHE_LINE_BYTES * link.worker,
            "bell_offset": self.control.bell_offset(link.worker),
            "files": descriptors.original_limit,
        }
        shared = None if self.shared is None else self.shared.descriptor
        passed = (*inherited.values(), *bells, shared)
        return inherited | arguments, [one for one in passed if one is not None]


def _popen(arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start the bootstrap."""
    # A worker starts with SIGINT blocked, so that it prints no traceback before it
    # ignores the signal.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [*interpreter(), "-c", main.BOOTSTRAP, *arguments],
            stdin=subprocess.DEVNULL,
            # Its own session: Ctrl-C in the terminal reaches the parent alone, and
            # the worker leads a group that can be ended with the env's children.
            start_new_session=True,
            **options,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def interpreter() -> list[str]:
    """The command of workers: this interpreter with its flags."""
    program = os.fsdecode(spawn.get_executable() or "")
    if not program:
        raise FileNotFoundError(errno.ENOENT, "Python does not know its own program")
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # These versions raise SystemError for every absent attribute of a module once the
    # working directory was deleted, unless -P leaves it off the path; workers get the
    # parent's path anyway.
    if (3, 13, 0) <= sys.version_info[:3] < (3, 13, 3) and "-P" not in flags:
        flags.append("-P")
    return [program, *flags]


# Replacing ----------------------------------------------------------------------------


class Replacement(threading.Thread):
    """Starts one worker.

    Args:
        worker: the worker that it replaces.
        delay: seconds to wait first.
        spawn: starts the process.
        messages: setup, build and bind, as they are sent to it.
        health: makes its fault if it fails.
    """

    def __init__(
        self,
        worker: int,
        delay: float,
        spawn: Callable[[], WorkerLink],
        messages: tuple[bytes, bytes, bytes],
        health: WorkerHealth,
    ) -> None:
        super().__init__(name=f"corral-replacement-{worker}", daemon=True)
        self._worker, self._delay, self._spawn = worker, delay, spawn
        self._messages, self._health = messages, health
        self._cancelled = threading.Event()
        self._link: WorkerLink | None = None
        self._error: CorralError | None = None
        # Not `is_alive`: Ctrl-C in there can make Python take a thread for one that
        # has ended.
        self.has_finished = False
        self.start()

    def run(self) -> None:
        """Start the process and have it build and bind, unless cancelled."""
        try:
            self._run()
        finally:
            self.has_finished = True

    def _run(self) -> None:
        if self._cancelled.wait(self._delay):
            return
        try:
            with start_errors(None, self._worker, Exception):
                self._link = self._spawn()
                if not self._cancelled.is_set():
                    self._prepare(self._link)
        except CorralError as error:
            self._error = error
        if self._link is not None and (self._error or self._cancelled.is_set()):
            self._health.shut_down(self._link)
            self._link = None

    def _prepare(self, link: WorkerLink) -> None:
        """Have the process build and bind, as the one before it did."""
        mailbox, health = link.mailbox, self._health
        timeout = health.assignment.start_timeout
        setup, build, bind = self._messages
        try:
            mailbox.post_bytes(setup, timeout)
            mailbox.post_bytes(build, timeout)
            health.checked(self._worker, mailbox.fetch(timeout))
            mailbox.post_bytes(bind, timeout)
            mailbox.fetch(timeout)
        except MailboxTimeout as error:
            fault = replace(health.build_timeout(link), command="start", slot=None)
            kill(link.process)
            raise error_for(fault) from error
        except MailboxClosed as error:
            wait_until(link.process, time.monotonic() + SILENT_EXIT_SECONDS)
            raise error_for(health.death_of_replacement(link)) from error

    def result(self) -> WorkerLink:
        """The worker, once finished; raises if it could not be started."""
        if self._error is not None:
            raise self._error
        assert self._link is not None
        return self._link

    def cancel(self) -> None:
        """Cancel the start; envs that are built already are closed."""
        self._cancelled.set()
        link = self._link
        if link is not None:
            link.mailbox.hang_up()

    def end(self, deadline: float) -> None:
        """After `cancel`: end the process and the thread."""
        self.join(max(0.0, deadline - time.monotonic()))
        link = self._link
        if link is not None and self.is_alive():
            kill(link.process)
            self.join(SILENT_EXIT_SECONDS)
        elif link is not None:
            self._health.shut_down(link)
