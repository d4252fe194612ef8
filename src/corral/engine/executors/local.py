"""In a worker: runs the commands of a pool of its own slots, as `serial` does.

For a site, which steps the envs beside it: see `engine.pool.sites`. While the worker
belongs to its site, results are neither rung for nor posted; the parent reads the
slots' tickets afterwards, and its deadlines hold for the envs' own code alone.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import cloudpickle

from corral.core import EnvSpec
from corral.engine.executors.contract import Assignment
from corral.engine.executors.serial import InlineExecutor
from corral.engine.layout.codec import Codecs
from corral.engine.layout.plan import (
    ANSWERING,
    BUSY_SINCE,
    CURRENT_COMMAND,
    STEPPING,
    DataViews,
)
from corral.engine.worker.letters import Letter, Reply, WorkerEndpoint, for_travel
from corral.engine.worker.worker import Worker
from corral.errors import ClosedError, Fault


class LocalExecutor(InlineExecutor):
    """A worker's own envs, run by the code beside them.

    Args:
        worker: whose envs.
        assignment: of its slots, counted from 0.
    """

    def __init__(self, worker: Worker, assignment: Assignment) -> None:
        job = worker.job
        control = worker.endpoint.control.part(job.worker, job.slots)
        super().__init__(assignment, worker, control)
        self._stop = control.stop[0].data
        self._vitals = control.vitals[0].data

    def build(self) -> list[EnvSpec]:
        """The specs of the envs, which the worker has built."""
        return [adapter.spec for adapter in self._worker.shard.envs.adapters]

    def bind(self, codecs: Codecs) -> DataViews:
        """The worker's rows of the block, where the codecs have laid them out."""
        worker = self._worker
        views = worker.views.part(worker.job.slots)
        self._endpoint = WorkerEndpoint(
            0, self.control, self._messages.popleft, self._keep
        )
        self._outlet = worker.shard.new_outlet(
            self._endpoint, self.shards[0], views, packs=False
        )
        return views

    @contextmanager
    def in_charge(self) -> Iterator[None]:
        """The worker obeys this executor alone until the end of the block."""
        worker, endpoint = self._worker, self._worker.endpoint
        outlet = worker.shard.use(self._outlet)
        worker.endpoint, worker.shard.stays = self._endpoint, True
        try:
            yield
        finally:
            worker.endpoint, worker.shard.stays = endpoint, False
            worker.shard.use(outlet)

    def _keep(self, message: Letter | Reply) -> None:
        if isinstance(message, Letter) and self._worker.job.owns_process:
            # A site may send them home, so they must be fit for that.
            message.fault = _carried(message.fault)
            message.restarted = _carried(message.restarted)
        super()._keep(message)

    def step_inline(self, mode: int) -> None:
        """Step every slot right now."""
        vitals = self._vitals
        if self._stop[0]:
            self._enter()
        # `_enter`, without the call.
        vitals[BUSY_SINCE] = perf_counter()
        vitals[CURRENT_COMMAND] = STEPPING
        try:
            while self._queue:
                self._run_next()
            self._worker.shard.step_all(mode)
            self._finished += self._slots
        finally:
            vitals[CURRENT_COMMAND] = ANSWERING

    def _enter(self) -> None:
        """From here on the envs' code is run, and must be in time."""
        if self._stop[0]:
            raise ClosedError("the pool of this site is being closed")
        # In this order: the parent must not take the site's own time for the envs'.
        self._vitals[BUSY_SINCE] = perf_counter()
        self._vitals[CURRENT_COMMAND] = STEPPING

    def _leave(self) -> None:
        self._vitals[CURRENT_COMMAND] = ANSWERING

    def close(self, timeout: float | None) -> None:
        """Nothing: the envs belong to the worker."""


def _carried(fault: Fault | None) -> Fault | None:
    """The fault as the parent would get it."""
    if fault is None:
        return None
    carried: Fault = pickle.loads(cloudpickle.dumps(for_travel(fault)))
    return carried
