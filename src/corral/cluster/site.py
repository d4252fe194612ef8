"""A site: a fixed range of the cluster's slots, with one pool and copies of a policy.

    driver                                      site
    SiteCall("fill", orders, rows) ──────────►  pool.workers: act, step, act, step, ...
    Answer(Fragment, version)      ◄──────────

It knows neither Ray nor a network: it is made, called and closed by what hosts it.
Policies and weights pass through it as bytes, to its workers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from corral.engine.pool import Pool, PoolOptions
from corral.engine.pool.options import ApiOptions
from corral.engine.pool.sites import Sites
from corral.engine.transport.weights import PublishedWeights, SharedWeights
from corral.engine.worker.letters import describe, for_travel
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.engine.worker.serialization import unpack_registry
from corral.errors import Fault
from corral.rollouts.episode_run import Episode, EpisodeItem, EpisodeOptions
from corral.rollouts.filling import Boundary
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.published_policy import Orders, PublishedPolicy, in_segment
from corral.rollouts.site import Fragment, policy_sites
from corral.rollouts.workers_episodes import run_at_sites
from corral.rollouts.workers_filling import WorkersFiller


@dataclass(frozen=True, slots=True)
class SiteSetup:
    """What a site is made from.

    Attributes:
        generation: How many sites had these slots before.
        node: Where it is, for its faults.
        env: As `corral.Pool` takes it, for these slots.
        registry: The envs that the driver has registered.
    """

    number: int
    generation: int
    node: str
    slots: range
    env: Any
    options: PoolOptions
    registry: list[bytes]


class SiteOrders(NamedTuple):
    """How the copies of a policy have to act; what a site has already is left out.

    Attributes:
        key: Tells the policy's publisher from others.
        kept: The keys that are in use; the site forgets the others.
    """

    key: int
    kept: frozenset[int]
    orders: Orders


@dataclass(slots=True)
class Answer:
    """What a site returned or raised.

    Attributes:
        version: Of the weights that it acted with.
        restarted: Faults that its pool has recovered from.
    """

    value: Any
    generation: int
    version: int = 0
    faults: tuple[Fault, ...] = ()
    restarted: tuple[Fault, ...] = ()


class RelayedPolicy(PublishedPolicy):
    """A policy that the driver has published, for the workers of this site."""

    def __init__(self) -> None:
        self._orders: Orders | None = None
        self._memory: Any = None
        self._weights = SharedWeights()
        self._number = -1

    def take(self, orders: Orders) -> None:
        """Act like this from now on; what is left out is as before."""
        before, packed = self._orders, orders.policy
        if packed.number != self._number:
            self._number, self._weights = packed.number, SharedWeights()
        if packed.data:
            packed, self._memory = in_segment(packed)
        else:
            assert before is not None, "the first orders have the policy"
            packed = before.policy
        weights = orders.weights
        if weights is not None and weights.arrays is not None:
            self._weights.publish(weights.arrays)
            weights = weights._replace(arrays=None)  # the object store is free again
        self._orders = Orders(packed, weights, orders.norm)

    def publish(self) -> int:
        """Nothing: the driver publishes."""
        return 0

    def orders(self, norm: ObsNorm | None) -> Orders:
        """The driver's orders, with what they speak of in shared memory."""
        assert self._orders is not None, "take comes first"
        given = self._orders.weights
        weights = None if given is None else self._weights.published()
        return self._orders._replace(weights=weights)

    @property
    def version(self) -> int:
        """The driver's version of the weights."""
        weights = None if self._orders is None else self._orders.weights
        return 0 if weights is None else weights.version


@dataclass(slots=True)
class _Copies:
    """The copies of one policy in the workers of a site."""

    policy: RelayedPolicy
    filler: WorkersFiller
    episodes: Sites | None = None


class Site:
    """Runs the slots of one range; its calls are those of the driver.

    Args:
        setup: what to build.
        cpus: number of workers, if none was asked for.
    """

    def __init__(self, setup: SiteSetup, cpus: int) -> None:
        unpack_registry(setup.registry)
        self._setup = setup
        self._slots = setup.slots
        self.pool = Pool.with_options(
            setup.env,
            len(setup.slots),
            _local_options(setup, cpus),
            ApiOptions(
                first_slot=setup.slots.start,
                own_processes=setup.options.workers is None,
            ),
        )
        self._copies: dict[int, _Copies] = {}
        self._restarted: list[Fault] = []
        self.pool.call_on_restart(self._restarted.append)

    def answer(self, method: str, args: tuple[Any, ...]) -> Answer:
        """Call a method; errors are faults of the answer."""
        generation = self._setup.generation
        answer = Answer(None, generation)
        try:
            answer.value = getattr(self, method)(*args)
        except Exception as error:
            answer.faults = faults_of(error, method)
            answer.value = getattr(error, "episodes", ())
        if args and isinstance(args[0], SiteOrders) and args[0].key in self._copies:
            answer.version = self._copies[args[0].key].policy.version
        answer.faults = tuple(map(self._ours, answer.faults))
        answer.restarted = tuple(map(self._ours, self._restarted))
        self._restarted.clear()
        return answer

    def _ours(self, fault: Fault) -> Fault:
        """The fault with the numbers of the whole cluster."""
        return placed(fault, self._setup)

    # Rows -----------------------------------------------------------------------------

    def begin(self, orders: SiteOrders, root: int) -> Boundary:
        """Reset every slot; its episodes have seeds from (root, slot, 0, 1, ...)."""
        self.pool.drain()
        return self._following(orders).filler.begin(root)

    def fill(self, orders: SiteOrders, rows: int) -> Fragment:
        """Fill the next rows of every slot; observations are not normalised."""
        filled = self._following(orders).filler.fill(rows)
        buffer = filled.buffer
        ends = buffer.packed_ends()
        faults = {at: self._ours(fault) for at, fault in ends.faults.items()}
        return Fragment(
            tuple(buffer.extras),
            buffer.arrays(),
            ends._replace(faults=faults),
            filled.first_carry,
            filled.after,
            tuple(map(self._ours, buffer.faults)),
        )

    def _following(self, given: SiteOrders) -> _Copies:
        for key in self._copies.keys() - given.kept:
            del self._copies[key]
        copies = self._copies.get(given.key)
        if copies is None:
            policy = RelayedPolicy()
            # Without the norm: the driver has it, and normalises all rows together.
            copies = _Copies(policy, WorkersFiller(self.pool, policy, None))
            self._copies[given.key] = copies
        copies.policy.take(given.orders)
        return copies

    # Episodes -------------------------------------------------------------------------

    def run_episodes(
        self,
        orders: SiteOrders,
        items: Sequence[EpisodeItem],
        options: EpisodeOptions,
    ) -> dict[int, Episode]:
        """Run items; returns episodes by number."""
        self.pool.drain()
        copies = self._following(orders)
        if copies.episodes is None:
            copies.episodes = policy_sites(self.pool)
        # Numbered from 0: a desk has a place for each.
        numbers = [item.number for item in items]
        mine = [replace(item, number=at) for at, item in enumerate(items)]
        done = run_at_sites(
            self.pool, copies.episodes, copies.policy, mine, options, None
        )
        return {
            numbers[at]: replace(
                episode,
                item=numbers[at],
                faults=tuple(map(self._ours, episode.faults)),
            )
            for at, episode in done.items()
        }

    # About itself ---------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """What this site's pool has measured."""
        return {"pid": os.getpid(), "pool": self.pool.stats()}

    def close(self) -> None:
        """Close every env and end every worker."""
        self.pool.close()


def placed(fault: Fault, setup: SiteSetup) -> Fault:
    """A fault of a site's pool with its place in the cluster, ready to be sent."""
    first = setup.slots.start
    slot = None if fault.slot is None else fault.slot + first
    beside = None if fault.beside is None else fault.beside + first
    sent = replace(for_travel(fault), slot=slot, beside=beside)
    return replace(sent, site=setup.number, node=setup.node)


def faults_of(error: Exception, command: str) -> tuple[Fault, ...]:
    """The faults of an error; one that says what was raised, if it has none."""
    known = getattr(error, "faults", ()) or (getattr(error, "fault", None),)
    found = tuple(fault for fault in known if fault is not None)
    return found or (describe(error, command, None, 0),)


def _local_options(setup: SiteSetup, cpus: int) -> PoolOptions:
    """The options of the pool of a site."""
    options, root = setup.options, setup.options.seed
    assert root is not None, "the cluster has chosen a seed"
    if setup.generation:  # global generators must not draw the same numbers again
        root = episode_seed(root, SeedDomain.WORKERS, setup.generation)
    backend = "process" if options.backend == "auto" else options.backend
    workers = options.workers
    if workers is None and backend != "serial" and options.isolation != "slot":
        workers = min(cpus, len(setup.slots))
    return replace(options, backend=backend, workers=workers, seed=root)


def own_weights(weights: PublishedWeights | None) -> Any:
    """The arrays of published weights, copied."""
    if weights is None or weights.arrays is None:
        return None
    return {name: np.array(array) for name, array in weights.arrays.items()}
