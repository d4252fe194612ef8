"""Workers as threads of this process: no pickling, no start-up, one GIL.

For envs that release the GIL (physics in C, network, sleep). Threads use the caller's
thread counts and global generators, and cannot be ended when they hang.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from corral.core import EnvSpec
from corral.engine.executors.contract import Assignment, Capabilities
from corral.engine.executors.reaping import current_command
from corral.engine.executors.signalled import SignalledExecutor
from corral.engine.executors.start_errors import construction_fault, start_errors
from corral.engine.executors.uninterrupted import uninterrupted
from corral.engine.faults.report import error_for
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import ControlViews, DataViews, plan_control, plan_data
from corral.engine.transport import doorbell
from corral.engine.transport.block import Block
from corral.engine.transport.mailbox import LocalMailbox, MailboxClosed
from corral.engine.worker.commands import MAIL_ENTRY, Ask
from corral.engine.worker.endpoint import WorkerEndpoint
from corral.engine.worker.forked_copies import guard_of
from corral.engine.worker.letters import Letter, Reply, unpickled_copy
from corral.engine.worker.serve import serve
from corral.engine.worker.worker import Worker
from corral.errors import Fault


class ThreadExecutor(SignalledExecutor):
    """One thread per shard."""

    capabilities = Capabilities(survives_deaths=False)

    def __init__(self, assignment: Assignment) -> None:
        super().__init__(assignment)
        largest = max(len(shard) for shard in self.shards)
        plan = plan_control(assignment.slots, len(self.shards), largest)
        self._blocks = [Block.create(plan.size, shared=False)]
        control = ControlViews(plan, self._blocks[0].memory)
        with start_errors(assignment.seed):
            uninterrupted(lambda: self._hang_bells(control))
        self._open_control(control)
        self._threads: list[threading.Thread] = []
        # One generator state for the whole process: with isolate_rng, one at a time.
        lock = threading.Lock() if assignment.options.isolate_rng else None
        self._workers = [
            Worker(assignment.job(worker, shard), lock, guard_of(worker))
            for worker, shard in enumerate(self.shards)
        ]

    def _hang_bells(self, control: ControlViews) -> None:
        """The parent's bell, and one per worker; none if one cannot be opened."""
        with ExitStack() as opened:
            for worker in (None, *range(len(self.shards))):
                bell = doorbell.create(control.memory, control.bell_offset(worker))
                opened.callback(bell.close)
                self._bells.append(bell)
            opened.pop_all()
        self._bell = self._bells.pop(0)

    def __del__(self) -> None:
        # Ctrl-C may come before a pool owns the executor.
        if hasattr(self, "_threads") and not self._threads:
            self.close(0.0)

    def build(self) -> list[EnvSpec]:
        """Build each shard in the thread that will run it, and leave it waiting.

        One after the other: constructors of most libraries are not written for threads.
        """
        specs: list[EnvSpec] = []
        for index, worker in enumerate(self._workers):
            ours, theirs = LocalMailbox.pair()
            self._mailboxes.append(ours)
            thread = threading.Thread(
                target=self._run,
                args=(worker, theirs),
                name=f"corral-worker-{index}",
                daemon=True,
            )
            self._threads.append(thread)  # first: a signal may come after it has begun
            thread.start()
            built = ours.fetch()
            if isinstance(built, BaseException):
                raise error_for(construction_fault(built, worker.job)) from built
            specs.extend(built)  # type: ignore[arg-type]
        return specs

    def _run(self, worker: Worker, mailbox: LocalMailbox) -> None:
        """The body of a worker thread."""
        try:
            try:
                built = worker.build()
                worker.guard()
                mailbox.post(built)
            except BaseException as error:
                worker.guard(error)
                mailbox.post(error)
                return
            endpoint = mailbox.fetch()
            if isinstance(endpoint, WorkerEndpoint):  # else asked to close
                serve(worker, endpoint)
        except MailboxClosed:
            pass  # the pool was closed before it was bound
        finally:
            worker.guard()
            worker.shard.close()

    def bind(self, codecs: Codecs) -> DataViews:
        """Lay out private memory and let the threads serve."""
        plan = plan_data(self._assignment.slots, codecs.obs, codecs.action, start=0)
        with start_errors(self._assignment.seed):
            data = Block.create(plan.size, shared=False, touched=plan.touched)
        self._blocks.append(data)
        views = DataViews(plan, data.memory)
        for index, worker in enumerate(self._workers):
            mailbox = self._mailboxes[index]
            theirs = mailbox.other()
            endpoint = WorkerEndpoint(
                index,
                self._control,
                theirs.fetch,
                _keeping(theirs),
                self._bells[index],
                self._bell,
                self._worker_spin,
            )
            worker.bind(views, codecs, endpoint)
            mailbox.post(endpoint)
        self._open_channels()
        return views

    def _fault_if_dead(self, worker: int) -> Fault | None:
        """Threads do not die, whatever an env raises; a dead one must not hang recv."""
        if self._threads[worker].is_alive():
            return None
        command, slot = current_command(self._control, worker, self.shards[worker])
        return Fault("died", command, slot, worker, os.getpid())

    def close(self, timeout: float | None) -> None:
        """Ask the threads to close their envs; a thread that hangs is left behind."""
        if self._closed:
            return
        self._closed = True
        for worker, mailbox in enumerate(self._mailboxes):
            self._control.stop[worker, 0] = 1  # for one whose queue is full
            # Ctrl-C may have come before the thread of the last mailbox was started.
            started = worker < len(self._threads) and len(self._blocks) > 1
            alive = started and self._threads[worker].is_alive()
            if alive and self._has_room(worker):
                mailbox.post(Ask("close"))
                self._announce(worker, [MAIL_ENTRY])
                self._bells[worker].flush()
            else:
                mailbox.close()
        limit = self._assignment.close_timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        for thread in self._threads:
            if thread.ident is not None:  # else a signal came before it was started
                thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            return  # a thread that hangs still uses the memory
        for bell in (self._bell, *self._bells):
            bell.close()
        for block in self._blocks:
            block.close()


def _keeping(mailbox: LocalMailbox) -> Callable[[Letter | Reply], None]:
    def post(message: Letter | Reply) -> None:
        if isinstance(message, Letter):
            message = unpickled_copy(message)
        mailbox.post(message)

    return post
