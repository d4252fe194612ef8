"""A cluster: the slots of many machines, run by sites; `corral.Cluster`."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import count
from time import perf_counter
from typing import Any, NoReturn

import numpy as np

from corral.cluster.collector import ClusterFiller
from corral.cluster.engine import Engine, Node, Parts
from corral.cluster.episodes import ItemRun
from corral.cluster.links import Builder, LinkOptions, Links, SiteLink
from corral.cluster.plan import fitting_sites, plan_sites
from corral.cluster.room import room_for
from corral.cluster.shipping import importable_with, packages_of, registered_here
from corral.cluster.site import Answer, SiteOrders, SiteSetup
from corral.core import Policy
from corral.engine.adapters.env_names import resolve_env
from corral.engine.adapters.factories import EnvSource, is_list
from corral.engine.executors.assign import Placement
from corral.engine.faults.report import one_error_for
from corral.engine.faults.restart_limits import RestartBudget
from corral.engine.keywords import (
    check_choice,
    check_count,
    check_limit,
    checked_keywords,
)
from corral.engine.pool import Pool, PoolOptions
from corral.engine.pool.options import root_seed
from corral.engine.pool.stats import Stats, Times, WorkerStats
from corral.errors import ClosedError, CorralError, Fault, OptionError, OrderError
from corral.rollouts.episode_run import Episode, EpisodeItem, EpisodeOptions
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.published_policy import Orders, PolicyFactory, PublishedPolicy
from corral.rollouts.site_group import SiteGroup
from corral.rollouts.workers_filling import WorkersFiller

_KEYS = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The options of a cluster that are not those of its pools; checked when made."""

    address: str = "auto"
    cpus_per_site: int | None = None
    sites: int | None = None
    working_dir: str | None = None
    fragment_timeout: float | None = None
    on_node_loss: str = "raise"

    def __post_init__(self) -> None:
        for name in ("cpus_per_site", "sites"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        check_limit("fragment_timeout", self.fragment_timeout)
        check_choice("on_node_loss", self.on_node_loss, ("raise", "restart"))
        if not self.address or not isinstance(self.address, str):
            raise OptionError(
                f'address is {self.address!r}; use "auto", "local" or "HOST:PORT"'
            )


@dataclass(slots=True)
class _Shipment:
    """What of one publisher was put where sites can read it."""

    key: int
    edition: int = -1
    version: int = -1
    policy: Any = None
    weights: Any = None


@dataclass(frozen=True, slots=True)
class SiteStats:
    """One site.

    Attributes:
        restarts: How often it was started again.
        calls: How many calls it has answered.
        busy_seconds: How long these took, seen from the driver.
        pid: Its process; 0 if it was lost, and starts again with the next rollout.
        pool: What its own pool has measured; see `Pool.stats`. None if it was lost.
    """

    site: int
    node: str
    pid: int
    slots: range
    restarts: int
    calls: int
    busy_seconds: float
    pool: Any


@dataclass(frozen=True, slots=True)
class ClusterStats:
    """The sites and nodes of a cluster, as `print` shows them."""

    nodes: tuple[Node, ...]
    sites: tuple[SiteStats, ...]

    def __str__(self) -> str:
        lines = [
            f"node {one.name}: {one.cpus:g} CPUs, {one.free:g} free"
            for one in self.nodes
        ]
        lines += [
            f"site {one.site} on {one.node}, pid {one.pid}: slots {one.slots.start} to "
            f"{one.slots.stop - 1}, {one.calls} calls in {one.busy_seconds:.1f} s, "
            f"{one.restarts} restarts"
            for one in self.sites
        ]
        return "\n".join(lines)


class Cluster(SiteGroup):
    """Envs on the machines of a Ray cluster; collects where the envs are.

        with corral.Cluster("Ant-v5", num_envs=512, address="auto") as cluster:
            collector = corral.Collector(cluster, policy)
            rollout = collector.collect(128)

    Each *site* has a range of the slots: a process with a pool of its own, whose
    workers have copies of the policy. Rollouts are those of one `Pool`, bit for bit, if
    a row's decision does not depend on its batch.

    Args:
        env: as `corral.Pool` takes it.
        num_envs: number of slots of all sites together.
        address: of a Ray cluster that is running: "auto" for the one that this machine
            belongs to, or "HOST:PORT"; "local" for a Ray on this machine alone, which
            ends with the cluster.
        cpus_per_site: CPUs that a site reserves, and its number of workers (default: 8,
            or those of the largest node).
        sites: number of sites (default: as many as fit).
        working_dir: a folder that is sent to every node, where its modules can be
            imported. Without it, modules that are not installed travel by value.
        fragment_timeout: seconds for one call of a site (default: no limit).
        on_node_loss: "raise", or "restart": the rows of a lost site are padding, and it
            is started again, as often as `max_restarts` and `restarts_per_minute` say.
        **options: everything else that `corral.Pool` takes.

    Raises:
        ClusterError: no cluster is at the address, or it has too few CPUs or other
            versions.
        StartError: an env could not be built.
    """

    @checked_keywords(onward=Pool)
    def __init__(
        self,
        env: EnvSource,
        num_envs: int | None = None,
        *,
        address: str = "auto",
        cpus_per_site: int | None = None,
        sites: int | None = None,
        working_dir: str | os.PathLike[str] | None = None,
        fragment_timeout: float | None = None,
        on_node_loss: str = "raise",
        **options: Any,
    ) -> None:
        if working_dir is not None:
            working_dir = os.fspath(working_dir)  # Ray takes no Path
        given = locals()
        names = [one.name for one in fields(ClusterOptions)]
        asked = ClusterOptions(**{name: given[name] for name in names})
        self._start(env, num_envs, asked, PoolOptions(**options), None)

    @classmethod
    def with_options(
        cls,
        env: EnvSource,
        num_envs: int | None,
        asked: ClusterOptions,
        options: PoolOptions,
        engine: Engine | None = None,
    ) -> Cluster:
        """A cluster from options that were checked, and an engine that is not Ray."""
        cluster = cls.__new__(cls)
        cluster._start(env, num_envs, asked, options, engine)
        return cluster

    def _start(
        self,
        env: EnvSource,
        num_envs: int | None,
        asked: ClusterOptions,
        options: PoolOptions,
        engine: Engine | None,
    ) -> None:
        self._closed = True  # until there is anything to close
        if num_envs is None:
            num_envs = len(env) if is_list(env) else 1
        check_count("num_envs", num_envs)
        if asked.sites is not None:
            plan_sites(num_envs, asked.sites, options.repeat)  # before connecting
        env = _portable(env, options)
        self._asked, self.num_envs, self._env = asked, num_envs, env
        self.seed = root_seed(options.seed)
        given = {one.name: getattr(options, one.name) for one in fields(options)}
        self._options = PoolOptions(**{**given, "seed": self.seed})
        self.autoreset, self.repeat = options.autoreset, options.repeat
        self.sample_task = options.sample_task
        self.importable = importable_with(asked.working_dir)
        self._registry = registered_here(self.importable)
        self.send_count = 0
        self._error: CorralError | None = None
        self._shipments: weakref.WeakKeyDictionary[PublishedPolicy, _Shipment]
        self._shipments = weakref.WeakKeyDictionary()
        self._last: PublishedPolicy | None = None
        if engine is None:
            from corral.cluster.ray_engine import RayEngine

            engine = RayEngine(asked.address, asked.working_dir)
        self._engine, self._opened = engine, perf_counter()
        try:
            self._connect(asked, options)
        except BaseException:
            self._closed = False
            self.close()
            raise
        self._closed = False

    def _connect(self, asked: ClusterOptions, options: PoolOptions) -> None:
        groups = self.num_envs // options.repeat
        cpus, wanted, nodes = room_for(
            self._engine, asked.cpus_per_site, asked.sites, groups
        )
        self._nodes = frozenset(node.id for node in nodes)
        budget = RestartBudget(options.max_restarts, options.restarts_per_minute)
        self._links = Links(
            self._engine,
            LinkOptions(
                cpus,
                packages_of(self._env),
                self.importable,
                asked.fragment_timeout,
                asked.on_node_loss == "restart",
                budget,
            ),
            self._build_call,
        )
        self._open_sites(wanted)

    def _open_sites(self, wanted: int) -> None:
        self.shards = plan_sites(self.num_envs, wanted, self.repeat)
        self.send_count += 1
        (self.spec, layout), *_ = self._links.start(wanted)
        nodes = len({site.node for site in self._links.sites})
        workers = layout.workers * wanted
        many = f"{wanted} site{'s' * (wanted > 1)} on {nodes} node{'s' * (nodes > 1)}"
        self.layout = Placement(
            layout.backend, workers, self.num_envs, f"{many} of a cluster"
        )

    def _build_call(self, number: int, generation: int) -> tuple[str, tuple[Any, ...]]:
        slots = self.shards[number]
        env: Any = self._env
        if is_list(env):
            env = list(env)[slots.start : slots.stop]
        node = self._links.sites[number].node
        given = self._options, self._registry
        return "build", (SiteSetup(number, generation, node, slots, env, *given),)

    # Policies -------------------------------------------------------------------------

    def published(
        self, policy: Policy, factory: PolicyFactory | None
    ) -> PublishedPolicy:
        """The policy, published for its copies at the sites."""
        last = self._last
        if last is None or last.policy is not policy or last.factory is not factory:
            self._last = last = PublishedPolicy(policy, False, factory, self.importable)
        return last

    def filler(
        self, published: PublishedPolicy, obs_norm: ObsNorm | None
    ) -> WorkersFiller:
        """What fills rows at the sites."""
        self._last = None  # a collector's own
        return ClusterFiller(self, published, obs_norm)

    def _parts_for(
        self, site: SiteLink, published: PublishedPolicy, orders: Orders
    ) -> tuple[SiteOrders, Parts]:
        """The orders for a site, and the parts that it does not have yet."""
        shipped = self._shipments.get(published)
        if shipped is None:
            shipped = self._shipments[published] = _Shipment(next(_KEYS))
        packed, weights = orders.policy, orders.weights
        if packed.edition != shipped.edition:
            shipped.policy = self._engine.put(packed.data)
            shipped.edition = packed.edition
        version = -1 if weights is None else weights.version
        if weights is not None and version != shipped.version:
            shipped.weights, shipped.version = self._engine.put(weights.arrays), version
        kept = frozenset(one.key for one in self._shipments.values())
        assert site.sent is not None, "the site was built"
        has_edition, has_version = site.sent.get(shipped.key, (-1, -1))
        site.sent[shipped.key] = packed.edition, version
        parts = Parts(
            None if has_edition == packed.edition else shipped.policy,
            None if weights is None or has_version == version else shipped.weights,
        )
        slim = Orders(
            packed._replace(data=b""), weights and weights._replace(arrays=None)
        )
        slim = slim._replace(norm=orders.norm)
        return SiteOrders(shipped.key, kept, slim), parts

    # Calls ----------------------------------------------------------------------------

    def call(
        self,
        method: str,
        published: PublishedPolicy,
        orders: Orders,
        *args: Any,
        partly: bool = False,
    ) -> list[Any]:
        """Call a method of every site; a site that was lost has its Fault there.

        Args:
            method: its name.
            published: the policy that acts.
            orders: how it acts.
            args: more arguments.
            partly: keep the error of a site that is lost for good, as `error`.
        """
        self._check()
        numbers = range(len(self.shards))
        for number in numbers:
            self.send_to(number, method, published, orders, *args)
        found = self._links.gather(numbers)
        return [self.taken(number, found[number], orders, partly) for number in numbers]

    def send_to(
        self,
        number: int,
        method: str,
        published: PublishedPolicy,
        orders: Orders,
        *args: Any,
    ) -> None:
        """Call a method of one site; do not wait."""
        self.send_count += 1
        site = self._links.sites[number]
        for_site, parts = self._parts_for(site, published, orders)
        self._links.send(number, method, (for_site, *args), parts)

    def taken(
        self, number: int, one: Answer | Fault, orders: Orders, partly: bool = False
    ) -> Any:
        """What a site has returned; a lost one is started again, or that is an error.

        Raises:
            OrderError: it acted with other weights than it was told.
        """
        if isinstance(one, Fault):
            try:
                self._links.restart(one)
            except CorralError as error:
                if not partly:
                    raise
                self._error = self._error or error
            return one
        wanted = 0 if orders.weights is None else orders.weights.version
        if one.version != wanted:
            raise OrderError(
                f"site {number} acted with version {one.version} of the weights; "
                f"expected {wanted}"
            )
        return one.value

    @property
    def error(self) -> CorralError | None:
        """Why a site was lost for good."""
        return self._error

    def generation(self, number: int) -> int:
        """How often a site was started again."""
        return self._links.sites[number].generation

    def first_of(self, numbers: Sequence[int]) -> dict[int, Answer | Fault]:
        """Wait for the first of these sites."""
        return self._links.gather(numbers, first=True)

    def run_items(
        self,
        published: PublishedPolicy,
        items: Sequence[EpisodeItem],
        options: EpisodeOptions,
        norm: ObsNorm | None,
    ) -> dict[int, Episode]:
        """Run items at the sites; returns episodes by number."""
        self._check()
        published.publish()
        return ItemRun(self, published, items, options, norm).over()

    @contextmanager
    def crews(self, hire: Builder) -> Iterator[Links]:
        """The links, with a crew at every site beside its envs."""
        self._check()
        links, build = self._links, self._links.build

        def both(number: int, generation: int) -> tuple[str, tuple[Any, ...]]:
            links.call_now(number, *build(number, generation))
            return hire(number, generation)

        for number in range(len(links.sites)):
            links.send(number, *hire(number, links.sites[number].generation))
        links.answers(range(len(links.sites)))
        links.build = both  # also for a site that is started again meanwhile
        try:
            yield links
        finally:
            links.build = build
            links.dismiss()

    # Nodes that come and go -----------------------------------------------------------

    def rearrange(self) -> None:
        """Use nodes that have joined; only where all slots begin new episodes."""
        self._check()
        nodes = {node.id: node for node in self._engine.nodes()}
        if nodes.keys() == self._nodes:
            return
        self._nodes = frozenset(nodes)
        if self._asked.sites is None:
            self._plan_again(nodes)
        else:
            self._spread(nodes)

    def _plan_again(self, nodes: dict[str, Node]) -> None:
        """As many sites as fit now."""
        cpus = self._links.options.cpus
        ours = self._sites_by_node(nodes)
        room = [one.free + cpus * ours[one.id] for one in nodes.values()]
        groups = self.num_envs // self.repeat
        wanted = fitting_sites(room, cpus, None, groups)
        if wanted != len(self.shards):
            self._links.close()
            self._open_sites(wanted)

    def _spread(self, nodes: dict[str, Node]) -> None:
        """Move sites from the nodes with the most to nodes with fewer."""
        cpus = self._links.options.cpus
        ours = self._sites_by_node(nodes)
        room = {key: int(one.free // cpus) for key, one in nodes.items()}
        while True:
            open_nodes = [key for key in nodes if room[key] > 0]
            if not open_nodes:
                return
            least = min(open_nodes, key=lambda key: ours[key])
            most = max(nodes, key=lambda key: ours[key])
            if ours[most] - ours[least] < 2:
                return
            moved = next(s for s in self._links.sites if _node_of(s) == most)
            self._links.relocate(moved.number, least)
            ours[most], ours[least] = ours[most] - 1, ours[least] + 1
            room[most], room[least] = room[most] + 1, room[least] - 1

    def _sites_by_node(self, nodes: dict[str, Node]) -> dict[str, int]:
        at = [_node_of(site) for site in self._links.sites]
        return {key: at.count(key) for key in nodes}

    # As a pool ------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("this cluster is closed; make another one")
        if self._error is not None:
            raise OrderError(
                "a site of this cluster was lost, so it can only be closed; to "
                'continue after such losses: on_node_loss="restart"'
            ) from self._error

    def drain(self) -> None:
        """Wait for calls that Ctrl-C has left at work, and drop their answers."""
        self._links.drain()

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The latest faults that ended in a restart, oldest first."""
        return tuple(self._links.faults)

    @property
    def fault_count(self) -> int:
        """Number of faults that ended in a restart."""
        return self._links.count

    def call_on_restart(self, hook: Callable[[Fault], None] | None) -> None:
        """Call the hook at every restart of an env, a worker or a site."""
        self._links.on_restart = hook

    def times(self) -> Stats:
        """The driver's time; waiting for sites is one worker's steps."""
        links = self._links
        seconds, waiting = perf_counter() - self._opened, links.waiting_seconds
        none = np.zeros((1, 1), np.int64)
        steps, slots = Times(none, np.array([waiting])), range(self.num_envs)
        site = WorkerStats(0, slots, os.getpid(), seconds, waiting, None, None)
        resets = Times(none, np.zeros(1))
        policy = max(0.0, seconds - waiting)
        return Stats(seconds, policy, waiting, 0.0, steps, resets, (site,))

    def stats(self) -> ClusterStats:
        """The load of nodes and sites."""
        self._check()
        links = self._links
        for site in links.sites:
            links.send(site.number, "stats", ())
        found = links.gather(range(len(links.sites)))
        lost = [one for one in found.values() if isinstance(one, Fault)]
        if lost and not links.options.restarts:
            raise one_error_for(lost)
        gone: dict[str, Any] = {"pid": 0, "pool": None}
        told = {
            number: one.value if isinstance(one, Answer) else gone
            for number, one in found.items()
        }
        sites = tuple(
            SiteStats(
                site.number,
                site.node,
                told[site.number]["pid"],
                self.shards[site.number],
                site.generation,
                site.calls,
                site.busy_seconds,
                told[site.number]["pool"],
            )
            for site in links.sites
        )
        return ClusterStats(tuple(self._engine.nodes()), sites)

    @property
    def closed(self) -> bool:
        """Whether the cluster has been closed."""
        return self._closed

    def close(self) -> None:
        """Close every env and end every site; bounded, idempotent, never raises."""
        if self._closed:
            return
        self._closed = True
        try:
            if hasattr(self, "_links"):
                self._links.close()
        finally:
            self._engine.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cluster owns sites, so it cannot be copied or pickled")

    def __del__(self) -> None:
        if hasattr(self, "_closed"):  # otherwise the arguments were refused
            self.close()


def _node_of(site: SiteLink) -> str:
    return "" if site.link.node is None else site.link.node.id


def _portable(env: EnvSource, options: PoolOptions) -> Any:
    """The env as other machines can build it: `module:function` of here, by value."""
    if isinstance(env, str) and ":" in env and not options.batched:
        given = [*(options.env_kwargs or {})]
        return resolve_env(env, None, given=given).factory
    return env
