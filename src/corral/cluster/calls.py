"""The calls of all sites, as fillers and runs of episodes make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from corral.cluster.site import Answer
from corral.core import EnvSpec
from corral.errors import CorralError, Fault
from corral.rollouts.published_policy import Orders, PublishedPolicy


class SiteCalls(Protocol):
    """What `Cluster` offers to what runs on it."""

    spec: EnvSpec
    num_envs: int
    shards: tuple[range, ...]

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

    def send_to(
        self,
        number: int,
        method: str,
        published: PublishedPolicy,
        orders: Orders,
        *args: Any,
    ) -> None:
        """Call a method of one site; do not wait."""

    def first_of(self, numbers: Sequence[int]) -> dict[int, Answer | Fault]:
        """Wait for the first of these sites."""

    def taken(self, number: int, one: Answer | Fault, orders: Orders) -> Any:
        """What a site has returned; a lost one is started again, or that is an error.

        Raises:
            OrderError: it acted with other weights than it was told.
        """

    def generation(self, number: int) -> int:
        """How often a site was started again."""

    @property
    def error(self) -> CorralError | None:
        """Why a site was lost for good."""

    def rearrange(self) -> None:
        """Use nodes that have joined; only where all slots begin new episodes."""

    def drain(self) -> None:
        """Wait for calls that are not answered, and drop their answers."""
