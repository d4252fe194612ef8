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

import numpy as np
from numpy.typing import NDArray

from corral.engine.executors.contract import Assignment
from corral.engine.executors.reaping import (
    SILENT_EXIT_SECONDS,
    WorkerHealth,
    end,
    kill,
    wait_until,
)
from corral.engine.executors.start_errors import start_errors
from corral.engine.executors.worker_output import WorkerOutput
from corral.engine.faults.report import error_for
from corral.engine.layout.plan import (
    CACHE_LINE_BYTES,
    TICKET_MASK,
    ControlPlan,
    ControlViews,
)
from corral.engine.transport import child_processes, descriptors, doorbell
from corral.engine.transport.block import Block
from corral.engine.transport.doorbell import Doorbell
from corral.engine.transport.lifeline import Lifeline
from corral.engine.transport.mailbox import Mailbox, MailboxClosed
from corral.engine.transport.shared_arrays import SharedArrays
from corral.engine.worker import main, serialization
from corral.engine.worker.commands import ProcessSetup
from corral.errors import CorralError


def descriptors_for(workers: int) -> int:
    """How many descriptors the parent of so many workers opens; a test counts them."""
    # Two blocks and one of shared arrays (of each, mmap keeps a copy), lifeline,
    # stacks, output, the parent's bell.
    pool = 13
    # Mailbox, stdout, stderr, log; and its bell.
    each = 4 + (doorbell.KIND == "event")
    # The worker's ends of these until it has them, and what Popen opens meanwhile.
    start = 8
    return pool + workers * each + start


@dataclass(slots=True)
class Inheritance:
    """What all workers of a pool inherit."""

    block: Block
    control: ControlViews
    parents_bell: Doorbell
    lifeline: Lifeline
    stack: int
    shared: SharedArrays | None
    token: str
    """What the marks of all workers begin with; see `transport.child_processes`."""

    def arguments_for(
        self, worker: int, bell: Doorbell, mailbox: int, log: int
    ) -> tuple[dict[str, Any], list[int]]:
        """The arguments of a worker's `main`, and the descriptors that it inherits."""
        inherited = {
            "block": self.block.descriptor,
            "mailbox": mailbox,
            "lifeline_descriptor": self.lifeline.read_descriptor,
            "log": log,
            "stack": self.stack,
        }
        bells = (bell.descriptor, self.parents_bell.descriptor)
        arguments = {
            "worker": worker,
            "control_size": self.block.size,
            "bells": [descriptor for descriptor in bells if descriptor is not None],
            "stop_offset": self.control.plan.fields["stop"].offset
            + CACHE_LINE_BYTES * worker,
            "bell_offset": self.control.bell_offset(worker),
            "files": descriptors.original_limit(),
        }
        shared = None if self.shared is None else self.shared.descriptor
        passed = (*inherited.values(), *bells, shared)
        return inherited | arguments, [one for one in passed if one is not None]

    def mark(self, worker: int, generation: int) -> str:
        """The mark of the processes that a worker's envs start."""
        return f"{self.token}.{worker}.{generation}."


_FUNCTIONS = {
    "worker_init": "worker_init",
    "per_worker": "per_worker",
    "function": "the function",
}
"""What the user gives for all workers, and its name in errors."""


def packed(assignment: Assignment) -> Assignment:
    """The same with the user's functions pickled; raises if one cannot be."""
    pack, sample = serialization.pack, assignment.options.sample_task
    if sample is not None:
        pack(sample, "sample_task")
    for slot, factory in enumerate(assignment.factories):
        if slot == 0 or factory is not assignment.factories[slot - 1]:
            pack(factory, f"the factory of slot {slot}")
    given = {name: getattr(assignment, name) for name in _FUNCTIONS}
    functions: dict[str, Any] = {
        name: serialization.Unpacked(pack(function, _FUNCTIONS[name]))
        for name, function in given.items()
        if function is not None
    }
    return replace(assignment, **functions)


def setup_message(control: ControlPlan) -> bytes:
    """The first message, the same for every worker."""
    return pickle.dumps(
        ProcessSetup(
            argv=serialization.portable_argv(),
            log_levels=serialization.pack_log_levels(),
            registry=serialization.pack_registry(),
            control=control,
            bell_kind=doorbell.KIND,
        )
    )


@dataclass(slots=True)
class SpawnedWorker:
    """A worker process and the parent's ends of what it shares with it."""

    process: subprocess.Popen[bytes]
    mailbox: Mailbox
    bell: Doorbell

    def shut_down(self) -> None:
        """Let it close its envs, then end it; bounded."""
        self.mailbox.hang_up()
        wait_until(self.process, time.monotonic() + SILENT_EXIT_SECONDS)
        end(self.process)
        self.mailbox.close()
        self.bell.close()


def spawn_worker(
    worker: int,
    generation: int,
    assignment: Assignment,
    inheritance: Inheritance,
    output: WorkerOutput,
) -> SpawnedWorker:
    """Start one process; if that fails, close everything that was opened for it.

    Raises:
        StartError: the system refuses.
    """
    control = inheritance.control
    with (
        start_errors(assignment.seed, worker),
        ExitStack() as ours,
        ExitStack() as theirs,
    ):
        bell = doorbell.create(control.memory, control.bell_offset(worker))
        ours.callback(bell.close)
        near, far = Mailbox.pair()
        mailbox = Mailbox(near)
        ours.callback(mailbox.close)
        theirs.callback(far.close)
        pipes = []
        for _ in ("stdout", "stderr", "log"):
            pipes.append(os.pipe())
            ours.callback(os.close, pipes[-1][0])
            theirs.callback(os.close, pipes[-1][1])
        reads, writes = zip(*pipes, strict=True)
        arguments, inherited = inheritance.arguments_for(
            worker, bell, far.fileno(), writes[2]
        )
        process = _popen(
            # ascii, since the locale may change other characters.
            [ascii(serialization.absolute_path()), ascii(arguments)],
            stdout=writes[0],
            stderr=writes[1],
            pass_fds=inherited,
            env=serialization.environment(
                assignment.threads_per_worker, assignment.device(worker)
            )
            | {child_processes.MARK_VARIABLE: inheritance.mark(worker, generation)},
        )
        ours.pop_all()
        output.add(worker, *reads)
    return SpawnedWorker(process, mailbox, bell)


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


@dataclass
class Replacement:
    """One worker that is being started.

    Args:
        worker: the worker that it replaces.
        delay: seconds to wait first.
        spawn: starts the process.
        messages: setup, build and bind, as they are sent to it.
        timeout: seconds for each of its answers.
        health: makes its fault if it fails.
    """

    worker: int
    delay: float
    spawn: Callable[[], SpawnedWorker]
    messages: tuple[bytes, bytes, bytes]
    timeout: float | None
    health: WorkerHealth
    spawned: SpawnedWorker | None = None
    error: CorralError | None = None
    """Why the worker could not be started."""

    def __post_init__(self) -> None:
        self._cancelled = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"corral-replacement-{self.worker}", daemon=True
        )
        self._thread.start()

    @property
    def finished(self) -> bool:
        """Whether it is ready, or has failed."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        if self._cancelled.wait(self.delay):
            return
        try:
            with start_errors(None, self.worker, Exception):
                self.spawned = self.spawn()
                if not self._cancelled.is_set():
                    self._prepare(self.spawned)
        except CorralError as error:
            self.error = error
        if self.spawned is not None and (self.error or self._cancelled.is_set()):
            self.spawned.shut_down()
            self.spawned = None

    def _prepare(self, spawned: SpawnedWorker) -> None:
        """Have the process build and bind, as the one before it did."""
        mailbox, timeout, health = spawned.mailbox, self.timeout, self.health
        setup, build, bind = self.messages
        try:
            mailbox.post_bytes(setup, timeout)
            mailbox.post_bytes(build, timeout)
            health.checked(self.worker, mailbox.fetch(timeout))
            mailbox.post_bytes(bind, timeout)
            mailbox.fetch(timeout)
        except TimeoutError as error:
            fault = health.build_timeout(self.worker, spawned.process.pid)
            kill(spawned.process)
            raise error_for(fault) from error
        except MailboxClosed as error:
            wait_until(spawned.process, time.monotonic() + SILENT_EXIT_SECONDS)
            fault = health.death(self.worker, spawned.process)
            raise error_for(replace(fault, command="start")) from error

    def result(self) -> SpawnedWorker:
        """The worker, once finished; raises if it could not be started."""
        if self.error is not None:
            raise self.error
        assert self.spawned is not None
        return self.spawned

    def cancel(self) -> None:
        """Cancel the start; envs that are built already are closed."""
        self._cancelled.set()
        spawned = self.spawned
        if spawned is not None:
            spawned.mailbox.hang_up()

    def end(self, deadline: float) -> None:
        """After `cancel`: end the process and the thread."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        spawned = self.spawned
        if spawned is None:
            return
        if self._thread.is_alive():
            kill(spawned.process)
            self._thread.join(SILENT_EXIT_SECONDS)
        else:
            spawned.shut_down()


def ring_for_lost_rings(bell: Doorbell, done: NDArray[np.uint32]) -> None:
    """Ring for results whose worker was killed between `done` and its ring.

    Other workers may be between the two right now; they get a moment. The caller checks
    `done` anyway, so one ring too many does no harm.
    """
    missing = 1 << 32
    for _ in range(20):
        finished = int(done.sum(dtype=np.uint64))
        missing = min(missing, finished - bell.count & TICKET_MASK)
        if not missing:
            return
    if missing < 1 << 31:
        bell.ring(missing)
        bell.flush()
