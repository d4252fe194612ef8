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
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

from corral.core import EnvSpec
from corral.engine.executors import openmp, reaping, spawn
from corral.engine.executors.contract import Assignment, closed_on_error, open_executors
from corral.engine.executors.signalled import (
    CLOSED_MEANWHILE,
    HEALTH_CHECK_SECONDS,
    SignalledExecutor,
    ring_for_lost_rings,
)
from corral.engine.executors.starting import start_errors, uninterrupted
from corral.engine.executors.worker_link import WorkerLink
from corral.engine.executors.worker_output import WorkerOutput
from corral.engine.faults import process_usage, report, stacks
from corral.engine.layout import codec, plan
from corral.engine.transport import child_processes, descriptors, shared_arrays
from corral.engine.transport.lifeline import Lifeline
from corral.engine.transport.mailbox import MailboxTimeout, deadline_after, readable
from corral.engine.worker import commands, serialization
from corral.errors import ClosedError, CorralError, Fault, FaultError

# Seconds for a worker to end by itself after a trial of envs.
PROBED_EXIT_SECONDS = 0.3
# Seconds for other workers to fail as well, or to build their envs, which then close.
FAILING_SECONDS = 0.25
# Seconds for a worker to notice by itself that a trial takes too long.
PROBE_GRACE_SECONDS = 0.1


class ProcessExecutor(SignalledExecutor):
    """One process per shard."""

    survives_deaths = True
    _pack = staticmethod(serialization.dumps)

    def __init__(self, assignment: Assignment, room: int = 0) -> None:
        """Lay out the control part, with room for the workers of a `reassign`."""
        # Room for the whole pool in each queue: `reassign` may make shards larger.
        workers = max(room, len(assignment.shards))
        layout = plan.plan_control(assignment.slots, workers, assignment.slots)
        self._owner = os.getpid()
        self._thread = threading.current_thread()
        self._generations = [0] * workers
        super().__init__(spawn.packed(assignment), layout)

    def _open(self, layout: plan.ControlPlan) -> None:
        """Open what the workers will inherit, and what is read from them."""
        opened = self._resources.enter_context
        descriptors.make_room(spawn.descriptors_for(len(self.shards)))
        _fill_standard_descriptors()
        block = self._open_control(layout, shared=True)
        shared: shared_arrays.SharedArrays | None = None
        if self._assignment.shared:
            arrays, shared = shared_arrays.share(self._assignment.shared)
            opened(closing(arrays))
            self.shared = shared.views(arrays)
        lifeline = opened(closing(Lifeline()))
        # One file for all workers: a hung worker writes its stack alone.
        stack = stacks.open_file()
        self._resources.callback(os.close, stack)
        self._output = opened(closing(WorkerOutput()))
        self._inheritance = spawn.Inheritance(
            self._assignment,
            block,
            self.control,
            self._bell,
            lifeline,
            stack,
            shared,
            self._output,
            token=os.urandom(8).hex(),
        )
        self._health = reaping.WorkerHealth(
            self._assignment, self.control, stack, self._output
        )

    # Starting -------------------------------------------------------------------------

    def launch(self) -> None:
        """Start the workers that are missing; they import while the parent works."""
        missing = range(len(self._links), len(self.shards))
        if missing:
            with closed_on_error(self, 0.0):
                self._start(missing)
                self._output.start()

    def _start(self, workers: Sequence[int]) -> None:
        """Start processes, in the place of others or behind them."""

        def spawn_all() -> None:
            for worker in workers:
                self._links[worker : worker + 1] = [self._spawn(worker)]

        uninterrupted(spawn_all)
        # Only now: a big registry cannot be posted before the worker reads it.
        setup = spawn.setup_message(self.control.plan)
        for worker in workers:
            self._post(self._links[worker], setup)

    def _spawn(self, worker: int) -> WorkerLink:
        return self._inheritance.spawn(worker, self._generations[worker])

    def reassign(self, shards: list[range]) -> None:
        """Change the shards, and so the number of workers, before envs are built."""
        surplus = self._links[len(shards) :]
        for link in surplus:
            link.mailbox.hang_up()
        for link in surplus:
            self._health.shut_down(link)
        del self._links[len(shards) :]
        self._assign(shards)
        self.launch()

    def probe_envs(
        self,
        worker: int,
        probe_slots: Sequence[int],
        question: commands.ProbeRequest,
        reached: Callable[[str], Any] = str,
        recorded: bytes | None = None,
    ) -> Any:
        """Have a worker build envs of these slots for a trial.

        Args:
            worker: it has built no env, or is replaced afterwards.
            probe_slots: which envs.
            question: what to find out.
            reached: called with each stage of the trial.
            recorded: what envs did elsewhere; the answer is whether these repeat it.

        Raises:
            MailboxTimeout: it takes much longer than the question allows.
            FaultError: an env failed or ended the process; `reached` was called with
                the stages before.
        """
        # A trial that times envs also waits for slow constructors.
        building = 4 * question.long_to_build if question.seconds else 0.0
        limit = question.limit + question.seconds + building + PROBE_GRACE_SECONDS
        link, job = self._links[worker], self._job(worker, probe_slots)
        self._post(link, self._pack(commands.ProbeEnvs(job, question, recorded)))
        answer = self._await_probe(link, limit) if recorded else self._await_start(link)
        while isinstance(answer, str):  # how far it is
            reached(answer)
            answer = self._await_probe(link, limit)
        return answer

    def _await_probe(self, link: WorkerLink, limit: float) -> Any:
        """As `_await_start`; counts only seconds in which the worker had a core."""
        pid = link.process.pid
        began, queued = time.monotonic(), process_usage.run_delay(pid) or 0.0
        while True:
            waited = (process_usage.run_delay(pid) or queued) - queued
            passed = time.monotonic() - began - waited
            try:
                answer = self._fetch(link, max(0.001, limit - passed))
                return self._health.checked(link.worker, answer)
            except MailboxTimeout:
                if passed > limit:
                    raise

    def respawn(self, worker: int) -> None:
        """Replace a process after a trial of envs."""
        self._health.shut_down(self._links[worker], PROBED_EXIT_SECONDS)
        self._forget(worker)
        self._start([worker])

    def build(self) -> list[EnvSpec]:
        """Have every worker build its shard, all at the same time."""
        self.launch()
        with closed_on_error(self):
            for link in self._links:
                job = self._job(link.worker)
                self._post(link, self._pack(commands.BuildShard(job)))
            return self._await_specs()

    def _await_specs(self) -> list[EnvSpec]:
        """The specs of all slots; an error does not wait for slow constructors."""
        deadline = deadline_after(self._assignment.start_timeout)
        building = {link.mailbox.fileno(): link for link in self._links}
        specs: dict[int, list[EnvSpec]] = {}
        failed: dict[int, FaultError] = {}
        try:
            while building and (left := deadline - time.monotonic()) > 0:
                answering = readable(building, min(HEALTH_CHECK_SECONDS, left))
                for link in [building.pop(descriptor) for descriptor in answering]:
                    try:
                        specs[link.worker] = self._await_start(link, left)
                    except FaultError as error:
                        failed[link.worker] = error
                        deadline = min(deadline, deadline_after(FAILING_SECONDS))
                for link in () if answering else building.values():
                    self._raise_if_dead(link)
            if failed:
                raise failed[min(failed)]
            for link in building.values():
                raise report.error_for(self._health.build_timeout(link))
        except BaseException:
            self._health.end_all([*building.values()])
            raise
        return [spec for worker in sorted(specs) for spec in specs[worker]]

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

    def _await_start(self, link: WorkerLink, timeout: float | None = None) -> Any:
        """The answer of a worker that is building something."""
        limit = self._assignment.start_timeout
        try:
            answer = self._fetch(link, limit if timeout is None else timeout)
        except MailboxTimeout as error:
            raise report.error_for(self._health.build_timeout(link)) from error
        return self._health.checked(link.worker, answer)

    def bind(self, codecs: codec.Codecs) -> plan.DataViews:
        """Append the data to the block and let the workers serve."""
        block, assignment = self._inheritance.block, self._assignment
        layout = plan.plan_data(
            assignment.slots, codecs.obs, codecs.action, start=block.size
        )

        def extend() -> None:
            self._data = block.extended(layout.size, layout.touched)
            self._resources.callback(self._data.close)

        with start_errors(assignment.seed):
            uninterrupted(extend)
        self._bind = commands.BindBlock(
            layout, serialization.dumps(codecs), self._worker_spin
        )
        bind = self._pack(self._bind)
        for link in self._links:
            self._post(link, bind)
        for link in self._links:
            self._await_start(link)
        self._bound = True
        self._health.watch(self.shards)
        self._find_present()
        self._helpers = openmp.HelperThreads(len(self.shards), assignment.cores)
        return plan.DataViews(layout, self._data.memory)

    def pids(self) -> list[int]:
        """The process of each worker."""
        return [link.process.pid for link in self._links]

    # Health ---------------------------------------------------------------------------

    def _fault_if_dead(self, link: WorkerLink) -> Fault | None:
        if reaping.has_ended(link.process):
            return self._health.death(link)
        return self._health.lateness(link) if self._health.has_deadlines else None

    def ended_workers(self) -> list[Fault]:
        """The faults of all workers that have ended and are not being replaced."""
        present = [link for link in self._links if link.worker not in self._away]
        for link in present:
            if link.fault is None and reaping.has_ended(link.process):
                link.fault = self._health.death(link)
        return [link.fault for link in present if link.fault is not None]

    def _await_death(self, link: WorkerLink) -> None:
        super()._await_death(link)
        # It is alive without its mailbox: an env may have closed all descriptors.
        reaping.end(link.process)
        self._raise_if_dead(link)

    def output(self, worker: int) -> str:
        """The last that a worker printed."""
        return self._output.tail(worker)

    # Replacing ------------------------------------------------------------------------

    def replace(
        self, worker: int, resume: commands.ResumeState | None, delay: float
    ) -> None:
        """Start a worker in the place of one that ended; does not wait for it."""
        self._links[worker].close()
        self._forget(worker)
        self._generations[worker] += 1
        try:
            ring_for_lost_rings(self._bell, self.control.done)
        except ValueError as error:
            self._raise_if_closed(error)
            raise
        messages = (
            spawn.setup_message(self.control.plan),
            self._pack(commands.BuildShard(self._job(worker))),
            self._pack(dataclasses.replace(self._bind, resume=resume)),
        )
        self._away[worker] = spawn.Replacement(
            worker, delay, lambda: self._spawn(worker), messages, self._health
        )
        self._find_present()

    def give_up(self, worker: int) -> None:
        """End a worker that is busy, and replace it."""
        self._health.end(self._links[worker])
        self.replace(worker, None, 0.0)

    def _forget(self, worker: int) -> None:
        """Clear what a worker was sent and has written, for the one after it."""
        self._links[worker].question = 0
        self._replies.pop(worker, None)
        control = self.control
        control.bells[1 + worker] = 0
        for words in (control.vitals, control.stop, control.consumed):
            words[worker] = 0
        self._posted_seen = b""  # the last look may have been interrupted

    def _install_replacement(self, worker: int) -> None:
        """Put a worker in its place, if it is ready."""
        replacement = self._away.get(worker)
        if self._closed or replacement is None:
            raise ClosedError(CLOSED_MEANWHILE)
        if replacement.has_finished:
            try:
                del self._away[worker]
                self._links[worker] = replacement.result()
                self._find_present()
                self.on_return(worker)
            except BaseException as error:
                # Ctrl-C: it may not know all that the others do.
                self._interrupted |= not isinstance(error, CorralError)
                raise

    # Ending ---------------------------------------------------------------------------

    def close(self, timeout: float | None) -> None:
        """Ask every worker to close its envs, then end those that do not."""
        if self._closed or os.getpid() != self._owner:
            return
        limit = self._assignment.close_timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        try:
            self._closed = True
            for worker, replacement in self._away.items():
                self.control.stop[worker, 0] = plan.CLOSE_ASKED
                replacement.cancel()
            for link in self._links:
                with suppress(Exception):
                    if link.process.returncode is None:
                        self._ask_to_close(link)
                        # Stop one that posts a letter, which is not read any more.
                        link.mailbox.close()
            links = {link.process: link for link in self._links}
            reaping.wait_for_all(
                links, deadline, lambda process: self._health.is_closing(links[process])
            )
        finally:  # a second Ctrl-C cuts the waiting short, not the ending
            uninterrupted(lambda: self._end_all(deadline))

    def _end_all(self, deadline: float) -> None:
        for link in self._links:
            reaping.kill(link.process)
        for link in self._links:
            with suppress(Exception):
                reaping.end(link.process)
        orderly = all(link.ended_in_order for link in self._links)
        for replacement in self._away.values():
            with suppress(Exception):
                replacement.end(deadline)
        for close in (*(link.close for link in self._links), self._resources.close):
            with suppress(Exception):
                close()
        # Clear these references: they form a cycle with the pool and would keep its
        # memory alive after close().
        self._away, self.shared = {}, {}
        self.on_return = lambda worker: None
        open_executors.discard(self)
        if not orderly:
            child_processes.end_marked(self._inheritance.token)


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
                for link in list(executor._links):
                    reaping.kill(link.process)
