"""Which slots each site has: arithmetic that knows no node.

Numbers do not depend on the plan: seeds, tasks and draws depend on the number of a slot
in the whole cluster.
"""

from __future__ import annotations

from collections.abc import Sequence

from corral.errors import ClusterError, OptionError

# CPUs of a site, if a node has as many.
CPUS_PER_SITE = 8


def plan_sites(num_envs: int, sites: int, repeat: int = 1) -> tuple[range, ...]:
    """Split slots into ranges that differ by one at most; groups stay together.

    >>> plan_sites(7, 3)
    (range(0, 3), range(3, 5), range(5, 7))
    """
    groups = num_envs // repeat
    if not 1 <= sites <= groups:
        many = f"{num_envs} slots" + f" in groups of {repeat}" * (repeat > 1)
        raise OptionError(
            f"sites is {sites}, and there are {many}; use sites from 1 to {groups}"
        )
    size, larger = divmod(groups, sites)
    starts = [(site * size + min(site, larger)) * repeat for site in range(sites + 1)]
    return tuple(map(range, starts, starts[1:]))


def sites_that_fit(cpus: Sequence[float], per_site: int) -> int:
    """How many sites of so many CPUs fit on nodes with these numbers of CPUs.

    >>> sites_that_fit([4, 9, 0], 4)
    3
    """
    return sum(int(count // per_site) for count in cpus)


def default_cpus(cpus: Sequence[float]) -> int:
    """CPUs of a site, if none were asked for.

    >>> default_cpus([16, 16]), default_cpus([4, 2])
    (8, 4)
    """
    return max(1, min(CPUS_PER_SITE, int(max(cpus, default=0))))


def fitting_sites(
    cpus: Sequence[float], per_site: int, sites: int | None, groups: int
) -> int:
    """The number of sites: as asked, or as many as fit and have slots.

    Raises:
        ClusterError: too few CPUs.
    """
    fits = sites_that_fit(cpus, per_site)
    if fits < (sites or 1):
        wanted = sites or 1
        nodes = ", ".join(f"{count:g}" for count in cpus) or "none"
        raise ClusterError(
            f"the cluster has too few free CPUs: {wanted} site{'s' * (wanted > 1)} of "
            f"{per_site} CPUs (cpus_per_site) asked for, {fits} fit. Free CPUs of its "
            f"nodes: {nodes}. Use a smaller cpus_per_site, fewer sites, or add nodes: "
            "ray start --address=HEAD:6379"
        )
    return sites or min(fits, groups)
