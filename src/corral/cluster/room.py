"""Room for sites: CPUs of nodes that are free, or will be in a moment.

Ray counts the CPUs of an actor that has ended as free about 0.1 s later. So a cluster
that closes waits for its own, and one that opens waits for those of others.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic, sleep

from corral.cluster.engine import Engine, Node
from corral.cluster.plan import default_cpus, fitting_sites, sites_that_fit
from corral.errors import ClusterError

# Seconds for other jobs to give CPUs back, and for Ray to count those of ours.
OPEN_SECONDS, CLOSE_SECONDS = 5.0, 2.0
LOOK_SECONDS = 0.05


def room_for(
    engine: Engine, cpus_per_site: int | None, sites: int | None, groups: int
) -> tuple[int, int, list[Node]]:
    """CPUs of a site, number of sites, and the nodes where they fit.

    Raises:
        ClusterError: too few CPUs; at once, if those in use would not suffice either.
    """
    deadline = monotonic() + OPEN_SECONDS
    while True:
        nodes = engine.nodes()
        free = [node.free for node in nodes]
        cpus = cpus_per_site or default_cpus(free)
        try:
            return cpus, fitting_sites(free, cpus, sites, groups), nodes
        except ClusterError:
            fits = sites_that_fit([node.cpus for node in nodes], cpus)
            if fits < (sites or 1) or monotonic() > deadline:
                raise
        sleep(LOOK_SECONDS)


def wait_for_cpus(engine: Engine, expected: Mapping[str, float]) -> None:
    """Wait until nodes have so many free CPUs; not for long, as others may take them.

    Args:
        engine: runs sites.
        expected: by node.
    """
    deadline = monotonic() + CLOSE_SECONDS
    while monotonic() < deadline:
        free = {node.id: node.free for node in engine.nodes()}
        if all(free.get(key, count) >= count for key, count in expected.items()):
            return
        sleep(LOOK_SECONDS)
