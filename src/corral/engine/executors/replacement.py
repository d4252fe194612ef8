"""A worker that replaces one that ended, started while the others go on.

A thread starts the process and sends it what the worker before it knew, so that the
survivors and the caller go on meanwhile. The caller's thread installs it between two
waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from corral.engine.executors.reaping import (
    SILENT_EXIT_SECONDS,
    WorkerHealth,
    kill,
    wait_until,
)
from corral.engine.executors.spawn import SpawnedWorker
from corral.engine.executors.start_errors import start_errors
from corral.engine.faults.report import error_for
from corral.engine.layout.plan import TICKET_MASK
from corral.engine.transport.doorbell import Doorbell
from corral.engine.transport.mailbox import MailboxClosed
from corral.errors import CorralError


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

    def __init__(
        self,
        worker: int,
        delay: float,
        spawn: Callable[[], SpawnedWorker],
        messages: tuple[bytes, bytes, bytes],
        timeout: float | None,
        health: WorkerHealth,
    ) -> None:
        self.worker = worker
        self.spawned: SpawnedWorker | None = None
        self.error: CorralError | None = None
        """Why the worker could not be started."""
        self._delay = delay
        self._spawn, self._messages = spawn, messages
        self._timeout, self._health = timeout, health
        self._cancelled = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"corral-replacement-{worker}", daemon=True
        )
        self._thread.start()

    @property
    def finished(self) -> bool:
        """Whether it is ready, or has failed."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        if self._cancelled.wait(self._delay):
            return
        try:
            with start_errors(None, self.worker, Exception):
                self.spawned = self._spawn()
                if not self._cancelled.is_set():
                    self._prepare(self.spawned)
        except CorralError as error:
            self.error = error
        if self.spawned is not None and (self.error or self._cancelled.is_set()):
            self.spawned.shut_down()
            self.spawned = None

    def _prepare(self, spawned: SpawnedWorker) -> None:
        """Have the process build and bind, as the one before it did."""
        mailbox, timeout, health = spawned.mailbox, self._timeout, self._health
        setup, build, bind = self._messages
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
