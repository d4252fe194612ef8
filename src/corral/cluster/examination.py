"""What `corral doctor --cluster` says: nodes, versions, limits, tokens."""

from __future__ import annotations

from collections.abc import Iterator

from corral.cluster.engine import Node
from corral.cluster.links import LinkOptions, Links
from corral.cluster.plan import default_cpus, sites_that_fit
from corral.cluster.ray_engine import RayEngine, has_token, health_checks
from corral.cluster.shipping import COMPARED, importable_with, versions
from corral.engine.faults.restart_limits import RestartBudget
from corral.errors import ClusterError

# Seconds after which a dead node should be noticed, and what sets them.
QUICK_SECONDS = 5.0
QUICK = (
    "RAY_health_check_initial_delay_ms=0 RAY_health_check_period_ms=1000 "
    "RAY_health_check_timeout_ms=1000 RAY_health_check_failure_threshold=3"
)


def examine(address: str) -> Iterator[tuple[str, str]]:
    """Look at a cluster; yields "ok", "warning" or "problem", and a line.

    Raises:
        ClusterError: none is at the address.
    """
    engine = RayEngine(address)
    try:
        nodes = engine.nodes()
        yield "ok", f"the cluster at {engine.address} answers"
        for node in nodes:
            yield "ok", f"node {node.name}: {node.cpus:g} CPUs, {node.free:g} free"
        free = [node.free for node in nodes]
        cpus = default_cpus(free)
        fit = sites_that_fit(free, cpus)
        if not fit:
            yield "problem", "no CPU is free: end other jobs, or add nodes"
            return
        yield "ok", f"{fit} site{'s' * (fit > 1)} of {cpus} CPUs fit (cpus_per_site)"
        yield from _versions(engine, nodes)
        yield from _limits()
    finally:
        engine.close()


def _versions(engine: RayEngine, nodes: list[Node]) -> Iterator[tuple[str, str]]:
    """Start a host on every node with a free CPU, and compare."""
    ours = versions([one for one in COMPARED if versions([one])[one]])
    yield "ok", "here: " + ", ".join(f"{name} {text}" for name, text in ours.items())
    packages = tuple(name for name in ours if name != "python")
    for node in nodes:
        if node.free < 1:
            yield "warning", f"node {node.name}: not compared, as no CPU is free"
            continue
        options = LinkOptions(
            1, packages, importable_with(None), None, False, RestartBudget()
        )
        links = Links(engine, options, lambda number, generation: ("hello", ()))
        try:
            links.compare(engine.start("doctor", 1, None, node.id))
            yield "ok", f"node {node.name}: the same versions"
        except ClusterError as error:
            lines = str(error).splitlines()
            said = [line.strip() for line in lines[1:-1]] or lines
            yield "problem", f"node {node.name}: {'; '.join(said)}"
        finally:
            links.close()


def _limits() -> Iterator[tuple[str, str]]:
    seconds = health_checks()
    told = f"a dead node is noticed after about {seconds:g} s"
    if seconds > QUICK_SECONDS:
        yield "warning", f"{told}; for 3 s, start the head node with {QUICK}"
    else:
        yield "ok", told
    if has_token():
        yield "ok", "token authentication is on"
    else:
        yield (
            "warning",
            "token authentication is off: every process that can connect to the head "
            "node runs code on all nodes. Set RAY_AUTH_MODE=token on every node",
        )
