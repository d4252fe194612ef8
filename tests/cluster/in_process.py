"""An engine without Ray: hosts in this process, called when their answer is wanted."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from corral.cluster.cluster import Cluster, ClusterOptions
from corral.cluster.engine import Link, Node, SiteGone
from corral.cluster.host import SiteHost
from corral.engine.pool import PoolOptions


@dataclass(eq=False)
class Call:
    link: Link
    method: str
    args: tuple[Any, ...]


@dataclass
class InProcess:
    """Nodes are names; `lose` lists the numbers of calls that end their host."""

    cpus: dict[str, int] = field(default_factory=lambda: {"a": 2, "b": 2, "c": 2})
    packages: dict[str, dict[str, str]] = field(default_factory=dict)
    lose: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    puts: list[Any] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self) -> None:
        self.hosts: dict[int, tuple[SiteHost, str, int]] = {}
        self._numbers = count()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def nodes(self) -> list[Node]:
        free = dict(self.cpus)
        for _, name, cpus in self.hosts.values():
            if name in free:
                free[name] -= cpus
        return [Node(name, name, cpus, free[name]) for name, cpus in self.cpus.items()]

    def put(self, value: Any) -> Any:
        self.puts.append(deepcopy(value))
        return self.puts[-1]

    def start(
        self, name: str, cpus: int, limit: float | None, node: str | None = None
    ) -> Link:
        fitting = [one for one in self.nodes() if one.free >= cpus]
        chosen = max(fitting, key=lambda one: (one.id == node, one.free))
        number = next(self._numbers)
        self.hosts[number] = SiteHost(cpus), chosen.id, cpus
        return Link(number, chosen)

    def call(self, link: Link, method: str, *args: Any) -> Call:
        return Call(link, method, args)

    def ready(self, calls: list[Call], timeout: float | None) -> list[Call]:
        ready = []
        for call in calls:
            if call.method == "call" and call not in self._counted:
                self._counted[call] = len(self.calls)
                self.calls.append((call.args[0], call.args[1:]))
            if self._counted.get(call) not in self.late:
                ready.append(call)
        return ready

    _counted: dict[Call, int] = field(default_factory=dict)

    def result(self, call: Call) -> Any:
        if self._counted.get(call) in self.lose:
            self.end(call.link)
        if call.link.handle not in self.hosts:
            raise SiteGone("its process has ended")
        host, name, _ = self.hosts[call.link.handle]
        value = getattr(host, call.method)(*call.args)
        if call.method == "about":
            return call.link.node, value | self.packages.get(name, {})
        return value

    def end(self, link: Link) -> None:
        host, *_ = self.hosts.pop(link.handle, (None,))
        if host is not None:
            host.close()

    def close(self) -> None:
        self.closed = True


def cluster_of(
    env: Any,
    num_envs: int,
    sites: int | None,
    engine: InProcess | None = None,
    **options: Any,
) -> Cluster:
    """A cluster whose sites run in this process, one worker each unless asked."""
    own = ("fragment_timeout", "on_node_loss", "working_dir")
    asked = ClusterOptions(
        sites=sites,
        cpus_per_site=options.pop("cpus_per_site", 1),
        **{name: options.pop(name) for name in own if name in options},
    )
    options = {"backend": "serial", "isolation": "shared", "seed": 0, **options}
    engine = engine or InProcess()
    pool = PoolOptions(**options)
    return Cluster.with_options(env, num_envs, asked, pool, engine)
