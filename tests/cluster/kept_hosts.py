"""Ray, for many runs one after the other: hosts stay."""

from __future__ import annotations

from typing import ClassVar

from corral.cluster import ray_engine
from corral.cluster.engine import Link
from corral.cluster.ray_engine import RayEngine

__all__ = ["KeptHosts", "ray_engine"]


class KeptHosts(RayEngine):
    """Ends no host: the next run builds its sites there, and torch is imported once."""

    kept: ClassVar[list[Link]] = []

    def nodes(self):
        """The nodes; CPUs of hosts that are kept are free."""
        at = {link.node.id for link in self.kept}
        found = super().nodes()
        return [one._replace(free=one.cpus) if one.id in at else one for one in found]

    def start(self, *args):
        """A host that is kept, or a new one."""
        return self.kept.pop() if self.kept else super().start(*args)

    def end(self, link):
        """Keep it; its site is closed."""
        self.kept.append(link)

    def close(self):
        """Stay connected, until the raylets end."""
