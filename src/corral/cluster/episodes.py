"""Whole episodes at the sites of a cluster, which are given items until none is left.

If a site is lost, its items are run again elsewhere, with the same seeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from corral.cluster.calls import SiteCalls
from corral.errors import CorralError, Fault
from corral.rollouts.episode_run import Episode, EpisodeItem, EpisodeOptions
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.published_policy import PublishedPolicy

# Each site is given its items in about this many portions, if they are many.
PORTIONS = 4


class ItemRun:
    """One `run_episodes` on a cluster."""

    def __init__(
        self,
        cluster: SiteCalls,
        published: PublishedPolicy,
        items: Sequence[EpisodeItem],
        options: EpisodeOptions,
        norm: ObsNorm | None,
    ) -> None:
        self._cluster, self._published, self._options = cluster, published, options
        self._orders = published.orders(norm)
        self._waiting = deque(items)
        self._share = -(-len(items) // (PORTIONS * len(cluster.shards)))
        self._at: dict[int, list[EpisodeItem]] = {}  # by site
        self._done: dict[int, Episode] = {}

    def over(self) -> dict[int, Episode]:
        """Run all items; returns episodes by number."""
        try:
            for number in range(len(self._cluster.shards)):
                self._hand_out(number)
            while self._at:
                for number, one in self._cluster.first_of([*self._at]).items():
                    items = self._at.pop(number)
                    if isinstance(one, Fault):
                        self._put_back(items, one)
                    found = self._cluster.taken(number, one, self._orders)
                    if isinstance(found, dict):
                        self._done |= found
                    self._hand_out(number)
        except CorralError as error:
            done = self._done | {one.item: one for one in error.episodes}
            error.episodes = tuple(done[number] for number in sorted(done))
            self._cluster.drain()
            raise
        return self._done

    def _hand_out(self, number: int) -> None:
        """Send a site its next items: at least one for each of its slots."""
        count = max(self._share, len(self._cluster.shards[number]))
        items = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        if items:
            given = self._published, self._orders, items, self._options
            self._cluster.send_to(number, "run_episodes", *given)
            self._at[number] = items

    def _put_back(self, items: Sequence[EpisodeItem], fault: Fault) -> None:
        for item in items:
            item.faults.append(fault)
            if item.can_run_again(self._options.max_restarts):
                self._waiting.append(item)
            else:
                self._done[item.number] = item.result(failed=True)
