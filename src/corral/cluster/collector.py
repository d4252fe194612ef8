"""Fills rows at the sites of a cluster: whole fragments, collected where the envs are.

filled = filler.fill(128)      one call to each site, and one answer from it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.cluster.calls import SiteCalls
from corral.engine.transport.segment import SegmentAddress
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import Fault
from corral.rollouts.filling import Boundary, Filled
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.published_policy import PublishedPolicy
from corral.rollouts.rollout_buffer import RolloutBuffer
from corral.rollouts.site import Fragment
from corral.rollouts.space_rows import SpaceParts
from corral.rollouts.workers_filling import WorkersFiller


class ClusterFiller(WorkersFiller):
    """Fills rows of every slot of a cluster; episodes continue.

    Args:
        cluster: with autoreset "same_step" or "next_step".
        published: the policy.
        obs_norm: normalises the policy's observations; sites use it as it is at the
            start of a fragment.
    """

    def __init__(
        self,
        cluster: SiteCalls,
        published: PublishedPolicy,
        obs_norm: ObsNorm | None,
    ) -> None:
        self._cluster, self._published, self._norm = cluster, published, obs_norm
        self._obs_space = SpaceParts(cluster.spec.observation_space)
        self._action_space = SpaceParts(cluster.spec.action_space)
        self._sites, self._segments, self._extras = None, [], {}
        self._root = 0

    @property
    def _shards(self) -> tuple[range, ...]:  # type: ignore[override]
        return self._cluster.shards

    def begin(self, root: int) -> Boundary:
        """Reset every slot; between two rollouts, sites may also move."""
        self._root = root
        self._cluster.rearrange()
        return self._joined(self._asked("begin", root))

    def fill(self, rows: int) -> Filled:
        """Fill the next rows of every slot, with the weights published last."""
        filled = super().fill(rows)
        filled.error = self._cluster.error
        return filled

    def _called(self, method: str, args: Any) -> list[Any]:
        orders, *more = args
        if method == "fill":
            more = more[:1]  # no memory is shared
        partly = method == "fill"
        given = self._published, orders, *more
        return self._cluster.call(method, *given, partly=partly)

    def _replaced(self, buffer: RolloutBuffer, found: Sequence[Any]) -> list[Any]:
        """Padding rows where a site was lost, and the first episodes of the next."""
        fragments = []
        for number, one in enumerate(found):
            if isinstance(one, Fault):
                buffer.lose(self._shards[number], one)
                after = self._restarted(number)
                one = Fragment((), {}, None, after.carry, after)
            fragments.append(one)
        return fragments

    def _restarted(self, number: int) -> Boundary:
        """Where the rows of a new site start; nowhere, if there is none."""
        cluster = self._cluster
        if cluster.error is not None:
            return self._nowhere(self._shards[number])
        while True:  # the cluster raises when its limit of restarts is reached
            orders = self._published.orders(self._norm)
            again = cluster.generation(number)
            root = episode_seed(self._root, again, SeedDomain.RESTARTS)
            cluster.send_to(number, "begin", self._published, orders, root)
            found = cluster.first_of([number])[number]
            one = cluster.taken(number, found, orders)
            if isinstance(one, Boundary):
                return one

    def _nowhere(self, slots: range) -> Boundary:
        parts, count = self._obs_space.parts, len(slots)
        obs = [np.zeros((count, *part.shape), part.dtype) for part in parts]
        initial = getattr(self._published.policy, "initial_carry", None)
        carry = None if initial is None else initial(count)
        return Boundary(self._obs_space.batch(obs), np.ones(count, np.bool_), carry)

    def _filled_again(self, rows: int, faults: Sequence[Fault]) -> Filled:
        if self._cluster.error is not None:  # nothing came back to be in it
            raise self._cluster.error
        for number in range(len(self._shards)):
            self._restarted(number)
        return super()._filled_again(rows, faults)

    def _new_buffer(self, rows: int) -> tuple[RolloutBuffer, SegmentAddress | None]:
        started = np.zeros(self._cluster.num_envs, np.bool_)
        return RolloutBuffer(self._obs_space, self._action_space, rows, started), None
