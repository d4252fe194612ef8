"""In a worker: a pool of the worker's own slots, and the sites that step it.

`SiteCall` is what the parent asks a worker. It is pickled by name, so `engine.worker`
need not know this room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from corral.core import EnvSpec
from corral.engine.executors.assign import Placement
from corral.engine.executors.contract import Assignment
from corral.engine.executors.local import LocalExecutor
from corral.engine.faults.restart_limits import RestartBudget
from corral.engine.layout.plan import DataViews
from corral.engine.pool.actions import Actions
from corral.engine.pool.fault_details import FaultDetails, PartDetails
from corral.engine.pool.opening import OpenWorkers
from corral.engine.pool.options import ApiOptions, PoolOptions, info_choice
from corral.engine.pool.pool import Pool
from corral.engine.pool.state import Lifecycle
from corral.engine.worker.forked_copies import guarded
from corral.engine.worker.letters import Reply, Unsendable, describe, for_travel
from corral.engine.worker.serialization import opened
from corral.engine.worker.shard_rows import WorkerRetired
from corral.engine.worker.worker import Worker
from corral.errors import CorralError, Fault

# Makes a site from the pool of its worker's slots.
Build = Callable[[Pool], Any]
# The options that go to the workers' pools as they are.
_LOCAL = ("autoreset", "copy", "debug", "check_actions", "batched", "step_timeout")


@dataclass(frozen=True, slots=True)
class LocalSetup:
    """What a worker needs for its first site, of the whole pool."""

    options: PoolOptions
    api: ApiOptions
    spec: EnvSpec
    layout: Placement

    @classmethod
    def of(cls, pool: Pool) -> LocalSetup:
        """The setup for the workers of a pool."""
        given, api = pool._options, pool._api
        known = {name: getattr(given, name) for name in _LOCAL}
        options = PoolOptions(**known, infos=info_choice(given.infos))
        api = ApiOptions(wants_reset=api.wants_reset, empty_finals=api.empty_finals)
        return cls(options, api, pool.spec, pool.layout)


class PartPool(Pool):
    """A worker's slots as a pool: a part of the one that has built their envs."""

    _executor: LocalExecutor

    def __init__(self, worker: Worker, setup: LocalSetup) -> None:
        slots, options = worker.job.slots, setup.options
        count = len(slots)
        assignment = Assignment(
            factories=[_no_factory] * count,
            shards=[range(count)],
            options=worker.job.options,
            shared=worker.job.shared,
            step_timeout=options.step_timeout,
        )
        executor = LocalExecutor(worker, assignment)
        opened = OpenWorkers(
            executor,
            replace(setup.layout, num_envs=count),
            executor.build(),
            setup.spec,
            worker.codecs,
            executor.bind(worker.codecs),
        )
        self._lifecycle = Lifecycle()
        budget = RestartBudget(options.max_restarts, options.restarts_per_minute)
        self._open(opened, assignment, options, setup.api, budget, slots)

    def _fault_details(self, actions: Actions, views: DataViews) -> FaultDetails:
        details = super()._fault_details(actions, views)
        return PartDetails.of(details, self.slots.start)


class LocalPool:
    """The pool of a worker's slots, and the sites in this worker by key."""

    def __init__(self, worker: Worker, setup: LocalSetup) -> None:
        self._shard = worker.shard
        self.pool = PartPool(worker, setup)
        self.sites: dict[int, Any] = {}

    @contextmanager
    def in_charge(self, call: SiteCall) -> Iterator[None]:
        """The site steps the envs until the end of the block."""
        pool, state, tickets = self.pool, self.pool._state, self._shard.tickets
        ours = tickets.base + tickets.offsets
        state.catch_up(ours, np.frombuffer(call.started, np.bool_))
        if call.obs:
            pool._inbox.set_mailed_obs(range(state.count), call.obs)
        if call.lost is not None:
            pool._recovery.tell_lost(opened(call.lost))
        with pool._executor.in_charge():
            try:
                yield
            finally:
                with suppress(CorralError):  # the site did not want these results
                    pool.drain()


@dataclass(slots=True)
class SiteReply(Reply):
    """What a site returned or raised, and what the parent has to know of its slots.

    Attributes:
        started: By slot, as bytes: whether it was reset, and has not failed since.
        obs: By slot: the leaves of its observation that are not in the block.
        built: Whether the worker has the site.
        seed: The root seed, which the site may have set.
        restarted: The faults that ended in a new env.
        plain: Whether it has nothing in it that users wrote, as a site says of what it
            returned: it is pickled in half the time.
    """

    started: bytes = b""
    obs: list[Any] = field(default_factory=list)
    built: bool = False
    seed: int = 0
    restarted: tuple[Fault, ...] = ()
    plain: bool = False

    def prepare(self) -> None:
        """Make its faults fit to travel."""
        Reply.prepare(self)
        self.restarted = tuple(map(for_travel, self.restarted))
        self.faults = [_without_task(fault) for fault in self.faults]

    def failed(self, fault: Fault) -> SiteReply:
        """What is sent where the value cannot be."""
        return replace(self, values=[], faults=[fault], plain=False)


@dataclass(frozen=True, slots=True)
class SiteCall:
    """Call a method of a worker's site, or build the site.

    Attributes:
        setup: A LocalSetup and a Build, where the worker has no such site yet; it
            travels packed, as the arguments do.
        started, obs: See `SiteReply`.
        kept: The keys of sites that are still in use; the others are dropped.
        lost: By slot of the worker: the fault that ended its episode, which its next
            row tells of.
        name: How a fault names the site; None for its method.
    """

    key: int
    method: str | None
    arguments: Any
    started: bytes
    obs: list[Any]
    kept: frozenset[int]
    setup: Any = None
    lost: Any = None
    name: str | None = None

    @property
    def command(self) -> str:
        """How a fault names it."""
        return self.name or f"site.{self.method or 'build'}"

    @property
    def making(self) -> str:
        """The same while it makes what the site needs."""
        return f"making {self.command}"

    def __call__(self, worker: Worker) -> SiteReply:
        """Answer it, in the worker."""
        values: list[Any] = []
        faults: list[Fault] = []
        before = int(worker.shard.tickets.offsets.sum()), worker.shard.tickets.base
        try:
            with guarded(worker.guard):
                values.append(self._answer(worker))
        except WorkerRetired:
            raise
        except BaseException as error:
            command = self.making if worker.constructs else self.command
            faults = faults_of(error, command, worker.job.worker)
        return self._reply(worker, values, faults, before)

    def _answer(self, worker: Worker) -> Any:
        build = None
        if self.setup is not None:
            setup, build = opened(self.setup)
            if worker.local is None:
                worker.local = LocalPool(worker, setup)
        local: LocalPool = worker.local
        for key in local.sites.keys() - self.kept:
            del local.sites[key]
        with local.in_charge(self):
            if build is not None:
                local.sites[self.key] = build(local.pool)
            if self.method is None:
                return None
            method = getattr(local.sites[self.key], self.method)
            return method(*opened(self.arguments))

    def _reply(
        self,
        worker: Worker,
        values: list[Any],
        faults: list[Fault],
        before: tuple[int, int],
    ) -> SiteReply:
        """The reply, with what happened to the slots."""
        tickets, local = worker.shard.tickets, worker.local
        offsets, base = before
        stepped = int(tickets.offsets.sum()) - offsets
        stepped += len(tickets.offsets) * (tickets.base - base)
        reply = SiteReply(values, faults, rings=stepped or 1, started=self.started)
        reply.seed = worker.job.options.root_seed
        if local is not None:
            reply.built = self.key in local.sites
            reply.started = local.pool._state.started.tobytes()
            reply.obs = local.pool._inbox.mailed_obs(range(len(tickets.offsets)))
            reply.restarted = local.pool._recovery.take_faults()
        if values and not (reply.obs or reply.restarted):
            reply.plain = getattr(values[0], "plain", False)
        return reply


def faults_of(error: BaseException, command: str, worker: int) -> list[Fault]:
    """What a site raised: the faults of its envs, or its own."""
    faults = getattr(error, "faults", ())
    return list(faults) or [describe(error, command, None, worker)]


def _without_task(fault: Fault) -> Fault:
    """The fault without its episode, if that has a task that cannot be sent."""
    stays = isinstance(fault.task, Unsendable)
    return replace(fault, episode=None) if stays else fault


def _no_factory() -> Any:
    raise AssertionError("the envs of a site are built by its worker")
