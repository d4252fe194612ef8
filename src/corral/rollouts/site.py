"""A policy beside the envs of one worker: what `act_in="workers"` runs there.

    caller                                     worker
    Orders(policy, weights, norm)  ─────────►  PolicySite.fill(rows)
    rows, in shared memory         ◄═════════  act, step, act, step, ...
    Fragment: all other results    ◄─────────

A site knows a pool of its slots, no process: the same code fills rows in a worker and,
under `serial`, in the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corral.engine.faults.advice import POLICY
from corral.engine.layout.plan import ANSWERING, CONSTRUCTING
from corral.engine.pool import Pool
from corral.engine.pool.sites import SiteContext, Sites
from corral.engine.transport.segment import SegmentAddress, open_segment
from corral.engine.transport.weights import WeightsReader
from corral.errors import Fault
from corral.rollouts.desk import desk_items
from corral.rollouts.episode_run import (
    Episode,
    EpisodeItem,
    EpisodeOptions,
    EpisodesRun,
)
from corral.rollouts.filling import Boundary, Filler
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.packed_ends import PackedEnds, pack_ends
from corral.rollouts.published_policy import Orders, check_loads
from corral.rollouts.space_rows import SpaceParts

Arrays = dict[str, NDArray[Any]]
# A pool as the policy sees it, from the pool of a worker's slots.
Wrap = Callable[[Pool], Pool]


class Fragment(NamedTuple):
    """Rows of a site's slots: what is not in shared memory.

    Attributes:
        extras: Names of the policy's extras.
        arrays: Arrays of the buffer, by name.
        ends: Ends of episodes; slots as the site counts them.
        faults: What ended episodes before row 0.
    """

    extras: tuple[str, ...]
    arrays: Arrays
    ends: PackedEnds | None
    first_carry: Any
    after: Boundary
    faults: tuple[Fault, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether it has numbers in it alone, and no objects of users."""
        ends, after = self.ends, self.after
        told = self.faults or (ends is not None and (ends.infos or ends.faults))
        if told or self.first_carry is not None or after.carry is not None:
            return False
        return all(
            type(array) is np.ndarray and not array.dtype.hasobject
            for array in (after.obs, *self.arrays.values())
        )


@dataclass(slots=True)
class _Memory:
    """The mapped part of a segment that belongs to this site."""

    address: SegmentAddress | None = None
    arrays: Arrays = field(default_factory=dict)


class PolicySite:
    """Runs a copy of the policy in the slots of one worker.

    Args:
        wrap: makes the pool that the policy sees.
        pool: of the worker's slots.
    """

    def __init__(self, wrap: Wrap | None, pool: Pool) -> None:
        self._pool = pool if wrap is None else wrap(pool)
        rows = self._pool.num_envs // pool.num_envs  # those of an env, with agents
        # The slots of the whole pool that are this site's.
        self._slots = range(pool.slots.start * rows, pool.slots.stop * rows)
        context = SiteContext.of(pool)
        self._first_number = context.first_slot * rows
        self._mark = context.mark
        self._decision_mark = None if context.step_timeout is None else self._mark
        self._space = SpaceParts(self._pool.spec.observation_space)
        self._number = self._edition = self._version = -1
        self._reader = WeightsReader()
        self._memory = _Memory()
        self._policy: Any = None
        self._norm: ObsNorm | None = None
        self._filler: Filler | None = None
        self._finished: dict[int, Episode] = {}

    # Orders ---------------------------------------------------------------------------

    def _obey(self, orders: Orders) -> None:
        """Act with this policy, with these weights, from now on."""
        if orders.policy.edition != self._edition:
            self._mark(CONSTRUCTING)  # `start_timeout` is for envs and policies
            self._policy = orders.policy.open()
            self._mark(ANSWERING)
            self._edition, self._version = orders.policy.edition, -1
        weights = orders.weights
        if weights is not None and weights.version != self._version:
            check_loads(self._policy)
            self._policy.load_weights(self._reader.load(weights))
            self._version = weights.version
        if orders.norm is None:
            self._norm = None
            return
        clip, state = orders.norm
        if self._norm is None or self._norm.clip != clip:
            self._norm = ObsNorm(self._pool.spec.observation_space, clip=clip)
        self._norm.load_state_dict(state)

    def _following(self, orders: Orders) -> Filler:
        self._obey(orders)
        if self._filler is None:
            self._filler = Filler(
                *(self._pool, self._policy, self._norm),
                inline=True,
                first_number=self._first_number,
                mark=self._decision_mark,
            )
        elif orders.policy.number != self._number:
            self._filler.follow(self._policy)
        else:
            self._filler.update(self._policy)
        self._number = orders.policy.number
        return self._filler

    # Rows -----------------------------------------------------------------------------

    def begin(self, orders: Orders, root: int) -> Boundary:
        """Reset every slot; see `Filler.begin`."""
        return self._following(orders).begin(root)

    def boundary(self, orders: Orders) -> Boundary:
        """Where the next row starts; new episodes, if this worker replaced another."""
        filler = self._following(orders)
        return filler.boundary() if filler.begun else filler.begin(None)

    def fill(
        self, orders: Orders, rows: int, address: SegmentAddress | None
    ) -> Fragment:
        """Fill the next rows of every slot.

        Args:
            orders: how to act.
            rows: how many.
            address: of the memory to fill; it has all slots of the whole pool.
        """
        filler = self._following(orders)
        faults: tuple[Fault, ...] = ()
        if not filler.begun:
            filler.begin(None)
            faults = filler.faults()
        filled = filler.fill(rows, self._mapped(address), self._slots.start)
        buffer = filled.buffer
        return Fragment(
            tuple(buffer.extras),
            buffer.private_arrays(),
            pack_ends(buffer.ends, self._space) if buffer.ends else None,
            filled.first_carry,
            filled.after,
            faults,
        )

    def _mapped(self, address: SegmentAddress | None) -> Arrays:
        """This site's part of the memory, which stays mapped until there is another."""
        if address is None or address != self._memory.address:
            part = slice(self._slots.start, self._slots.stop)
            whole = open_segment(address)
            arrays = {name: array[:, part] for name, array in whole.items()}
            self._memory = _Memory(address, arrays)
        return self._memory.arrays

    def weights(self) -> Arrays:
        """The weights of this site's copy of the policy."""
        found: Arrays = self._policy.weights()
        return found

    # Episodes -------------------------------------------------------------------------

    def run_episodes(
        self,
        orders: Orders,
        items: Sequence[EpisodeItem],
        address: SegmentAddress | None,
        options: EpisodeOptions,
    ) -> dict[int, Episode]:
        """Run items until none is left; returns episodes by number.

        Args:
            orders: how to act.
            items: what all workers take from.
            address: of the desk.
            options: as given to `run_episodes`.
        """
        self._obey(orders)
        with desk_items(items, address, self._slots) as left:
            try:
                run = EpisodesRun(
                    *(self._pool, self._policy, left, options, self._norm),
                    first_number=self._first_number,
                    mark=self._decision_mark,
                )
                self._finished = run.done
                while self._pool.waiting and not left.stopped:
                    run.advance(self._pool.waiting)
            except BaseException:
                left.stop()
                raise
        return self.take_finished()

    def take_finished(self) -> dict[int, Episode]:
        """The episodes that were finished, after an error before its end."""
        finished, self._finished = self._finished, {}
        return finished


def policy_sites(pool: Pool) -> Sites:
    """One site for a policy in each worker of a pool."""
    # A pool of agents has a pool of envs inside, and a way to wrap the workers' pools.
    wrap = getattr(pool, "wrapper", None)
    envs: Pool = pool if wrap is None else pool.pool  # type: ignore[attr-defined]
    return Sites(envs, partial(PolicySite, wrap), POLICY)
