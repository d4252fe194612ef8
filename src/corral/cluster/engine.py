"""What a cluster needs from the system that runs its sites; `ray_engine` is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from corral.cluster.shipping import Parcel


class Node(NamedTuple):
    """A machine of the cluster.

    Attributes:
        free: CPUs that nothing has reserved.
    """

    id: str
    name: str
    cpus: float
    free: float


class SiteGone(Exception):
    """A site has ended, with its process or its node; the text says how."""


@dataclass(slots=True)
class Link:
    """The driver's end of one host.

    Attributes:
        node: Where it is; None until it has said so.
    """

    handle: Any
    node: Node | None = None


class Engine(Protocol):
    """Starts, calls and ends the hosts of sites; see `host.SiteHost`."""

    def nodes(self) -> list[Node]:
        """The nodes that are alive."""

    def put(self, value: Any) -> Any:
        """Store a value once, as an argument for any number of calls."""

    def start(
        self, name: str, cpus: int, limit: float | None, node: str | None = None
    ) -> Link:
        """Start a host on a node with so many free CPUs; do not wait for it.

        Args:
            name: for its output.
            cpus: of the site.
            limit: seconds for a call, after which it ends by itself.
            node: where (default: anywhere).
        """

    def call(self, link: Link, method: str, *args: Any) -> Any:
        """Call a method of a host; do not wait. Returns the call, for `ready`."""

    def ready(self, calls: Sequence[Any], timeout: float | None) -> list[Any]:
        """Wait for the first of these calls; returns none if none ends in time."""

    def result(self, call: Any) -> Any:
        """What a call returned; raises SiteGone if its host has ended."""

    def end(self, link: Link) -> None:
        """End a host and its processes at once; never raises."""

    def close(self) -> None:
        """Disconnect; never raises."""


class Parts(NamedTuple):
    """The large parts of orders, from `Engine.put`; None for what is not sent."""

    policy: Any = None
    weights: Any = None


NO_PARTS = Parts()
Packed = Parcel
