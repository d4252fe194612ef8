"""Workers as processes, started clean and supervised.

    parent ── Popen(python -c bootstrap) ──► worker: own session, SIGINT ignored
       │          inherited: block, mailbox, bells, lifeline, log; nothing else
       ├── ProcessSetup, BuildShard, BindBlock ──►│  (mailbox)
       ├── entries, rings ───────────────────────►│  (block)
       └── lifeline ─────────────────────────────►│  hangs up when the parent ends

Not forked: the parent may hold threads, locks or a CUDA context. Not multiprocessing's
spawn either: that imports the user's `__main__` again.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from typing import Any

from corral.core import EnvSpec
from corral.engine.executors import reaping, spawn
from corral.engine.executors.contract import (
    Assignment,
    Capabilities,
    closed_on_error,
    open_executors,
)
from corral.engine.executors.openmp import HelperThreads
from corral.engine.executors.signalled import SignalledExecutor
from corral.engine.executors.start_errors import start_errors
from corral.engine.executors.uninterrupted import uninterrupted
from corral.engine.executors.worker_output import WorkerOutput
from corral.engine.faults import stacks
from corral.engine.faults.process_usage import run_delay
from corral.engine.faults.report import error_for
from corral.engine.layout import plan
from corral.engine.layout.codec import Codecs
from corral.engine.transport import child_processes, descriptors, doorbell
from corral.engine.transport.block import Block
from corral.engine.transport.lifeline import Lifeline
from corral.engine.transport.shared_arrays import SharedArrays, share
from corral.engine.worker import commands, serialization
from corral.engine.worker.probe import Measurement
from corral.errors import ClosedError, Fault

PROBED_EXIT_SECONDS = 0.3
"""Seconds for a worker to end by itself after a trial of envs."""
PROBE_GRACE_SECONDS = 0.1
"""Seconds for a worker to notice by itself that a trial takes too long."""


class ProcessExecutor(SignalledExecutor):
    """One process per shard."""

    capabilities = Capabilities(survives_deaths=True)
    _pack = staticmethod(serialization.dumps)

    def __init__(self, assignment: Assignment, room: int = 0) -> None:
        """Lay out the control part, with room for the workers of a `reassign`."""
        super().__init__(spawn.packed(assignment))
        # Room for the whole pool in each queue: `reassign` may make shards larger.
        workers = max(room, len(self.shards))
        layout = plan.plan_control(assignment.slots, workers, assignment.slots)
        self._owner = os.getpid()
        self._thread = threading.current_thread()
        self._bound = False
        self._processes: list[subprocess.Popen[bytes]] = []
        self._generations = [0] * workers
        self._resources = ExitStack()
        try:
            with start_errors(assignment.seed):
                uninterrupted(lambda: self._open(layout))
        except BaseException:
            self._resources.close()
            raise

    def _open(self, layout: plan.ControlPlan) -> None:
        """Open what the workers will inherit, and what is read from them."""
        opened = self._resources.enter_context
        descriptors.make_room(spawn.descriptors_for(len(self.shards)))
        _fill_standard_descriptors()
        block = opened(closing(Block.create(layout.size, shared=True)))
        shared: SharedArrays | None = None
        if self._assignment.shared:
            arrays, shared = share(self._assignment.shared)
            opened(closing(arrays))
        lifeline = opened(closing(Lifeline()))
        # One file for all workers: a hung worker writes its stack alone.
        stack = stacks.open_file()
        self._resources.callback(os.close, stack)
        self._output = opened(closing(WorkerOutput()))
        control = plan.ControlViews(layout, block.memory)
        offset = control.bell_offset(None)
        self._bell = opened(closing(doorbell.create(control.memory, offset)))
        self._open_control(control)
        token = os.urandom(8).hex()
        self._inheritance = spawn.Inheritance(
            block, control, self._bell, lifeline, stack, shared, token
        )
        mark, generations = self._inheritance.mark, self._generations
        self._health = reaping.WorkerHealth(
            self._assignment,
            control,
            stack,
            self._output,
            lambda worker: mark(worker, generations[worker]),
        )

    # Starting -------------------------------------------------------------------------

    def launch(self) -> None:
        """Start the workers that are missing; they import while the parent works."""
        missing = range(len(self._processes), len(self.shards))
        if not missing:
            return
        with closed_on_error(self, 0.0):
            self._start(missing)
            self._output.start()

    def _start(self, workers: Sequence[int]) -> None:
        """Start processes, in the place of others or behind them."""

        def spawn_all() -> None:
            for worker in workers:
                self._put_in_place(worker, self._spawn(worker))

        uninterrupted(spawn_all)
        # Only now: a big registry cannot be posted before the worker reads it.
        setup = spawn.setup_message(self._control.plan)
        for worker in workers:
            self._post(worker, setup)

    def _spawn(self, worker: int) -> spawn.SpawnedWorker:
        generation = self._generations[worker]
        return spawn.spawn_worker(
            worker, generation, self._assignment, self._inheritance, self._output
        )

    def reassign(self, shards: list[range]) -> None:
        """Change the shards, and so the number of workers, before envs are built."""
        keep = len(shards)
        for part in self._mailboxes[keep:]:
            part.close()
        for process in self._processes[keep:]:
            reaping.wait_until(process, time.monotonic() + 2.0)
            reaping.end(process)
        for bell in self._bells[keep:]:
            bell.close()
        del self._mailboxes[keep:], self._processes[keep:], self._bells[keep:]
        self._assign(shards)
        self.launch()

    def probe_envs(
        self,
        worker: int,
        probe_slots: Sequence[int],
        question: commands.ProbeRequest,
        reached: Callable[[str], Any],
    ) -> Measurement:
        """Have a worker build envs of these slots for a trial.

        Raises:
            TimeoutError: it takes much longer than the question allows.
            FaultError: an env failed or ended the process; `reached` was called with
                the stages before.
        """
        # A trial that times envs also waits for slow constructors.
        building = 4 * question.long_to_build if question.seconds else 0.0
        limit = question.limit + question.seconds + building + PROBE_GRACE_SECONDS
        message = commands.ProbeEnvs(self._job(worker, probe_slots), question)
        self._post(worker, self._pack(message))
        answer = self._await_start(worker)
        while isinstance(answer, str):  # how far it is
            reached(answer)
            answer = self._await_probe(worker, limit)
        assert isinstance(answer, Measurement)
        return answer

    def repeats_recording(
        self, worker: int, probe_slots: Sequence[int], recorded: bytes, limit: float
    ) -> bool:
        """Whether envs in another process repeat a trial."""
        job = self._job(worker, probe_slots)
        self._post(worker, self._pack(commands.ProbeEnvs(job, recorded=recorded)))
        return bool(self._await_probe(worker, limit))

    def _await_probe(self, worker: int, limit: float) -> Any:
        """As `_await_start`; counts only seconds in which the worker had a core."""
        pid = self._pid(worker)
        began, queued = time.monotonic(), run_delay(pid) or 0.0
        while True:
            passed = time.monotonic() - began - ((run_delay(pid) or queued) - queued)
            try:
                answer = self._fetch(worker, max(0.001, limit - passed))
            except TimeoutError:
                if passed > limit:
                    raise
                continue
            return self._health.checked(worker, answer)

    def respawn(self, worker: int) -> None:
        """Replace a process after a trial of envs."""
        process = self._processes[worker]
        self._mailboxes[worker].hang_up()
        reaping.wait_until(process, time.monotonic() + PROBED_EXIT_SECONDS)
        self._health.end(worker, process)
        self._forget(worker)
        self._start([worker])

    def _put_in_place(self, worker: int, spawned: spawn.SpawnedWorker) -> None:
        """Add the next worker, or replace one."""
        self._processes[worker : worker + 1] = [spawned.process]
        self._mailboxes[worker : worker + 1] = [spawned.mailbox]
        self._bells[worker : worker + 1] = [spawned.bell]

    def build(self) -> list[EnvSpec]:
        """Have every worker build its shard, all at the same time."""
        self.launch()
        workers = range(len(self.shards))
        with closed_on_error(self):
            for worker in workers:
                self._post(worker, self._pack(commands.BuildShard(self._job(worker))))
            return [spec for worker in workers for spec in self._await_start(worker)]

    def _job(
        self, worker: int, probe_slots: Sequence[int] | None = None
    ) -> commands.Job:
        """What a worker builds: its shard, or envs for a trial."""
        slots = self.shards[worker] if probe_slots is None else range(len(probe_slots))
        job = self._assignment.job(worker, slots, probe_slots)
        return dataclasses.replace(
            job,
            # Pickled together: a factory of many slots is pickled once.
            factories=serialization.Unpacked(serialization.dumps(job.factories)),
            shared=self._inheritance.shared or {},  # type: ignore[arg-type]
            owns_process=True,
            threads=self._assignment.threads_per_worker,
            generation=self._generations[worker],
        )

    def _await_start(self, worker: int) -> Any:
        """The answer of a worker that is building something."""
        try:
            answer = self._fetch(worker, self._assignment.start_timeout)
        except TimeoutError as error:
            fault = self._health.build_timeout(worker, self._pid(worker))
            raise error_for(fault) from error
        return self._health.checked(worker, answer)

    def bind(self, codecs: Codecs) -> plan.DataViews:
        """Append the data to the block and let the workers serve."""
        block, assignment = self._inheritance.block, self._assignment
        layout = plan.plan_data(
            assignment.slots, codecs.obs, codecs.action, start=block.size
        )
        with start_errors(assignment.seed):
            uninterrupted(lambda: self._extend(layout))
        self._bind = commands.BindBlock(
            layout, serialization.dumps(codecs), self._worker_spin
        )
        bind = self._pack(self._bind)
        for worker in range(len(self.shards)):
            self._post(worker, bind)
        for worker in range(len(self.shards)):
            self._await_start(worker)
        self._bound = True
        self._health.watch(self.shards)
        self._open_channels()
        self._helpers = HelperThreads(len(self.shards), assignment.cores)
        return plan.DataViews(layout, self._data.memory)

    def _extend(self, layout: plan.DataPlan) -> None:
        self._data = self._inheritance.block.extended(layout.size, layout.touched)
        self._resources.callback(self._data.close)

    def _pid(self, worker: int) -> int:
        return self._processes[worker].pid

    # Health ---------------------------------------------------------------------------

    def _fault_if_dead(self, worker: int) -> Fault | None:
        process = self._processes[worker]
        if reaping.has_ended(process):
            return self._health.death(worker, process)
        if self._health.has_deadlines:
            return self._health.lateness(worker, process, self._sent[worker])
        return None

    def _await_death(self, worker: int) -> None:
        super()._await_death(worker)
        # It is alive without its mailbox: an env may have closed all descriptors.
        reaping.end(self._processes[worker])
        self._raise_if_dead(worker)

    def output(self, worker: int) -> str:
        """The last that a worker printed."""
        return self._output.tail(worker)

    # Replacing ------------------------------------------------------------------------

    def replace(
        self, worker: int, resume: commands.ResumeState | None, delay: float
    ) -> None:
        """Start a worker in the place of one that ended; does not wait for it."""
        self._forget(worker)
        self._generations[worker] += 1
        spawn.ring_for_lost_rings(self._bell, self.done)
        messages = (
            spawn.setup_message(self._control.plan),
            self._pack(commands.BuildShard(self._job(worker))),
            self._pack(dataclasses.replace(self._bind, resume=resume)),
        )
        self._away[worker] = spawn.Replacement(
            worker,
            delay,
            lambda: self._spawn(worker),
            messages,
            self._assignment.start_timeout,
            self._health,
        )
        self._open_channels()

    def _forget(self, worker: int) -> None:
        """Reset what is known of a worker, was sent to it and fetched from it."""
        self._lost.pop(worker, None)
        self._health.forget(worker)
        self._unwanted[worker] = 0
        self._replies.pop(worker, None)
        self._mailboxes[worker].close()
        self._bells[worker].close()
        control, offset = self._control, self._control.bell_offset(worker)
        control.memory[offset : offset + plan.CACHE_LINE_BYTES] = bytes(
            plan.CACHE_LINE_BYTES
        )
        control.vitals[worker] = 0.0
        control.stop[worker] = 0
        self._sent[worker] = self._consumed[worker][0] = 0
        self._fetched[worker] = self._posted[worker]
        self._posted_seen = b""  # the last look may have been interrupted

    def _install_replacement(self, worker: int) -> None:
        """Put a worker in its place, if it is ready."""
        replacement = self._away.get(worker)
        if self._closed or replacement is None:
            raise ClosedError("this pool was closed while it was waiting")
        if not replacement.finished:
            return
        del self._away[worker]
        self._put_in_place(worker, replacement.result())
        self._open_channels()
        self.on_return(worker)

    # Ending ---------------------------------------------------------------------------

    def close(self, timeout: float | None) -> None:
        """Ask every worker to close its envs, then end those that do not."""
        if self._closed or os.getpid() != self._owner:
            return
        limit = self._assignment.close_timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        try:
            self._closed = True
            workers = dict(enumerate(self._processes))
            for worker, replacement in self._away.items():
                self._control.stop[worker, 0] = 1
                replacement.cancel()
            for worker in workers:
                with suppress(Exception):
                    self._ask_to_close(worker)
            reaping.wait_for_all(
                workers,
                deadline,
                lambda worker: self._health.is_closing(worker, self._pid(worker)),
            )
        finally:  # a second Ctrl-C cuts the waiting short, not the ending
            uninterrupted(lambda: self._end_all(deadline))

    def _end_all(self, deadline: float) -> None:
        for process in self._processes:
            reaping.kill(process)
        for process in self._processes:
            with suppress(Exception):
                reaping.end(process)
        workers = len(self._processes)
        orderly = (
            not workers or (self._control.stop[:workers, 0] == plan.WORKER_ENDED).all()
        )
        self._release(deadline)
        if not orderly:
            child_processes.end_marked(self._inheritance.token)

    def __del__(self) -> None:
        # Ctrl-C may come before a pool owns the executor.
        if getattr(self, "_resources", None) is not None:
            self.close(0.0)

    def _ask_to_close(self, worker: int) -> None:
        if self._processes[worker].returncode is not None:
            return
        # For a worker whose queue is full, or that is not looking at it yet.
        self._control.stop[worker, 0] = 1
        if self._bound and self._has_room(worker):
            with suppress(Exception):
                self._mailboxes[worker].post(commands.Ask("close"), timeout=0.0)
            self._announce(worker, [commands.MAIL_ENTRY])
            self._bells[worker].flush()
        # A worker that is posting a letter, which is not read any more, must stop.
        self._mailboxes[worker].close()

    def _release(self, deadline: float) -> None:
        for replacement in self._away.values():
            with suppress(Exception):
                replacement.end(deadline)
        for part in (*self._mailboxes, *self._bells):
            with suppress(Exception):
                part.close()
        with suppress(Exception):
            self._resources.close()
        # Clear these references: they form a cycle with the pool and would keep its
        # memory alive after close().
        self._away = {}
        self.on_return = lambda worker: None
        open_executors.discard(self)


def _fill_standard_descriptors() -> None:
    """Open 0 to 2, so that in a parent without stdout no pipe gets their numbers.

    They stay open: other code may have replaced them by the time of `close`.
    """
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor < 3:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)


def kill_workers_of(thread: threading.Thread) -> None:
    """Kill the workers that a thread has started, so that it stops waiting for them.

    For callers that must not wait for the thread. It may be starting more workers, so
    call this again until the thread has ended.
    """
    with suppress(RuntimeError):  # an executor was opened meanwhile
        for executor in list(open_executors):
            if isinstance(executor, ProcessExecutor) and executor._thread is thread:
                for process in list(executor._processes):
                    reaping.kill(process)
