"""A worker that takes the place of one that ended, started beside the others.

A thread does the waiting, so that the survivors and the caller go on meanwhile. What
it made is put in place by the caller's own thread, between two waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from corral.engine.executors.reaping import SILENT_EXIT_SECONDS, kill
from corral.engine.executors.spawn import SpawnedWorker
from corral.engine.faults.report import shortened
from corral.errors import CorralError, Fault, FaultError


class Replacement:
    """One worker on its way."""

    def __init__(
        self,
        worker: int,
        delay: float,
        spawn: Callable[[], SpawnedWorker],
        prepare: Callable[[SpawnedWorker], None],
    ) -> None:
        self.worker = worker
        self.spawned: SpawnedWorker | None = None
        self.error: CorralError | None = None
        """Why there is no worker after all."""
        self._delay = delay
        self._spawn, self._prepare = spawn, prepare
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
        self._cancelled.wait(self._delay)
        if self._cancelled.is_set():
            return
        try:
            self.spawned = self._spawn()
            if not self._cancelled.is_set():
                self._prepare(self.spawned)
        except CorralError as error:
            self.error = error
        except BaseException as error:
            fault = Fault(
                kind="start",
                command="start",
                worker=self.worker,
                error_type=type(error).__name__,
                error_text=shortened(str(error)),
                exception=error,
            )
            text = f"worker {self.worker}: {fault.error_text}"
            self.error = FaultError(text, fault)
        if self.spawned is not None and (self.error or self._cancelled.is_set()):
            self.spawned.shut_down()
            self.spawned = None

    def cancel(self) -> None:
        """Give it up; its envs are closed if they are built already."""
        self._cancelled.set()
        spawned = self.spawned
        if spawned is not None:
            spawned.mailbox.hang_up()

    def end(self, deadline: float) -> None:
        """After `cancel`: see to it that nothing is left of it."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        spawned = self.spawned
        if spawned is None:
            return
        if self._thread.is_alive():
            kill(spawned.process)
            self._thread.join(SILENT_EXIT_SECONDS)
        else:
            spawned.shut_down()
