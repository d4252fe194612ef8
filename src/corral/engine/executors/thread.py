"""Workers as threads of this process: no pickling, no start-up, one GIL.

For envs that release the GIL (physics in C, network, sleep). Threads use the caller's
thread counts and global generators, and cannot be ended when they hang.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from functools import partial

from corral.core import EnvSpec
from corral.engine.executors.contract import Assignment
from corral.engine.executors.reaping import current_command
from corral.engine.executors.signalled import SignalledExecutor
from corral.engine.executors.starting import construction_fault, start_errors
from corral.engine.executors.worker_link import WorkerLink
from corral.engine.faults.report import error_for
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import ControlPlan, DataViews, plan_control, plan_data
from corral.engine.transport.block import Block
from corral.engine.transport.mailbox import LocalMailbox, MailboxClosed
from corral.engine.worker.forked_copies import guard_of
from corral.engine.worker.letters import Letter, Reply, WorkerEndpoint, unpickled_copy
from corral.engine.worker.worker import Worker
from corral.errors import Fault


class ThreadExecutor(SignalledExecutor):
    """One thread per shard."""

    def __init__(self, assignment: Assignment) -> None:
        largest = max(len(shard) for shard in assignment.shards)
        workers = len(assignment.shards)
        # Threads that have ended. Ctrl-C in `is_alive` or `join` of a thread can make
        # Python take it for one.
        self._ended: set[int] = set()
        super().__init__(assignment, plan_control(assignment.slots, workers, largest))
        # One generator state for the whole process: with isolate_rng, one at a time.
        lock = threading.Lock() if assignment.options.isolate_rng else None
        self._workers = [
            Worker(assignment.job(worker, shard), lock, guard_of(worker))
            for worker, shard in enumerate(self.shards)
        ]

    def _open(self, plan: ControlPlan) -> None:
        """Open the control part, and a bell and a mailbox for each worker."""
        self._open_control(plan, shared=False)
        for worker in range(len(self.shards)):
            bell = self._resources.enter_context(closing(self._new_bell(worker)))
            ours, _ = LocalMailbox.pair()
            self._links.append(WorkerLink(worker, self.control, bell, ours))

    def build(self) -> list[EnvSpec]:
        """Build each shard in the thread that will run it, and leave it waiting.

        One after the other: constructors of most libraries are not written for threads.
        """
        specs: list[EnvSpec] = []
        for link, worker in zip(self._links, self._workers, strict=True):
            link.process = threading.Thread(
                target=self._run,
                args=(worker, link.mailbox.other()),
                name=f"corral-worker-{link.worker}",
                daemon=True,
            )
            link.process.start()
            built = link.mailbox.fetch()
            if isinstance(built, BaseException):
                raise error_for(construction_fault(built, worker.job)) from built
            specs += built
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
            mailbox.fetch()  # until it is bound
            worker.serve()
        except MailboxClosed:
            pass  # the pool was closed before it was bound
        finally:
            worker.guard()
            try:
                worker.shard.close()
            finally:
                self._ended.add(worker.job.worker)

    def bind(self, codecs: Codecs) -> DataViews:
        """Lay out private memory and let the threads serve."""
        plan = plan_data(self._assignment.slots, codecs.obs, codecs.action, start=0)
        with start_errors(self._assignment.seed):
            data = Block.create(plan.size, shared=False, touched=plan.touched)
        self._resources.callback(data.close)
        views = DataViews(plan, data.memory)
        for link, worker in zip(self._links, self._workers, strict=True):
            theirs = link.mailbox.other()
            endpoint = WorkerEndpoint(
                link.worker,
                self.control,
                theirs.fetch,
                partial(_post, theirs),
                link.bell,
                self._bell,
                self._worker_spin,
            )
            worker.bind(views, codecs, endpoint)
            link.mailbox.post(endpoint)
        self._bound = True
        self._find_present()
        return views

    def _fault_if_dead(self, link: WorkerLink) -> Fault | None:
        """Threads do not die, whatever an env raises; a dead one must not hang recv."""
        if link.worker not in self._ended:
            return None
        command, slot = current_command(link, self.shards[link.worker])
        return Fault("died", command, slot, link.worker, os.getpid())

    def close(self, timeout: float | None) -> None:
        """Ask the threads to close their envs; a thread that hangs is left behind."""
        if self._closed:
            return
        self._closed = True
        limit = self._assignment.close_timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        # Ctrl-C may have come before a thread was started.
        begun = [
            link
            for link in self._links
            if link.process and link.process.ident and link.worker not in self._ended
        ]
        for link in self._links:
            if link not in begun or not self._ask_to_close(link):
                link.mailbox.close()
        for link in begun:
            link.process.join(max(0.0, deadline - time.monotonic()))
        if all(link.worker in self._ended for link in begun):
            self._resources.close()  # a thread that hangs still uses the memory


def _post(mailbox: LocalMailbox, message: Letter | Reply) -> None:
    """Post to the caller's thread, in the same process."""
    if isinstance(message, Letter):
        message = unpickled_copy(message)
    mailbox.post(message)
