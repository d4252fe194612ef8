"""Fills rows in the workers: each has a copy of the policy, and steps its own slots.

    filled = filler.fill(128)      one message to each worker, and one from it

It has the methods of `filling.Filler`, and fills the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from corral.core import Policy
from corral.engine.pool import Pool
from corral.engine.pool.sites import Sites
from corral.engine.transport.segment import Segment, SegmentAddress
from corral.errors import Fault, OptionError
from corral.rollouts import carry as carries
from corral.rollouts.filling import Boundary, Filled
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.published_policy import PublishedPolicy
from corral.rollouts.rollout_buffer import EXTRAS, RolloutBuffer
from corral.rollouts.site import Fragment, policy_sites
from corral.rollouts.space_rows import SpaceParts

# Segments that rollouts may keep: one is filled while another is learned from.
KEPT_SEGMENTS = 2


class WorkersFiller:
    """Fills rows of every slot, one buffer after the other; episodes continue.

    Args:
        pool: with autoreset "same_step" or "next_step".
        published: the policy.
        obs_norm: normalises the policy's observations; it is not updated here.
    """

    def __init__(
        self, pool: Pool, published: PublishedPolicy, obs_norm: ObsNorm | None
    ) -> None:
        self.pool = pool
        self._published = published
        self._norm = obs_norm
        self._obs_space = SpaceParts(pool.spec.observation_space)
        self._action_space = SpaceParts(pool.spec.action_space)
        self._shards = pool.shards
        self._sites: Sites | None = None
        self._segments: list[Segment] = []
        # Shapes and dtypes of all other arrays, for this many rows.
        self._rows = 0
        self._shapes: dict[str, Any] = {}
        # Shapes and dtypes of extras, by the names of their arrays: known from the last
        # rows.
        self._extras: dict[str, Any] = {}

    def choose(self, mode: str, min_slots: int | None = None) -> None:
        """Refuse other modes: each worker acts for all its slots together."""
        if mode != "sync" or min_slots is not None:
            raise OptionError(
                f'mode is {mode!r}; with act_in="workers" each worker acts for its own '
                'slots, so leave mode="sync"'
            )

    def follow(self, policy: Policy) -> None:
        """Act with another policy, which has been published."""

    def begin(self, root: int) -> Boundary:
        """Reset every slot; its episodes have seeds from (root, slot, 0, 1, ...)."""
        if self._sites is not None:
            self._sites.drain()
        return self._joined(self._asked("begin", root))

    def fill(self, rows: int) -> Filled:
        """Fill the next rows of every slot, with the weights published last."""
        buffer, address = self._new_buffer(rows)
        orders = self._published.orders(self._norm)
        found = self._called("fill", (orders, rows, address))
        if all(isinstance(one, Fault) for one in found):
            # Nothing is left to learn from, not even the names of the extras.
            return self._filled_again(rows, found)
        for shard, one in zip(self._shards, found, strict=True):
            if isinstance(one, Fragment):
                _adopt(buffer, shard, one)
        if any(isinstance(one, Fault) for one in found):
            found = self._replaced(buffer, found)
        self._extras = {
            f"{EXTRAS}{name}": (array.shape[2:], array.dtype)
            for name, array in buffer.extras.items()
            if array.dtype != object
        }
        if sum(not one.free for one in self._segments) > KEPT_SEGMENTS:
            buffer.own()  # each segment that is kept has an open file
        if self._norm is not None:
            buffer.normalise(self._norm)
        first_carry = carries.joined([one.first_carry for one in found])
        return Filled(buffer, first_carry, self._joined([one.after for one in found]))

    def _filled_again(self, rows: int, faults: Sequence[Fault]) -> Filled:
        """All workers died and were replaced: the rows of their next episodes."""
        # The pool raises when its limit of restarts is reached.
        filled = self.fill(rows)
        filled.buffer.faults[:0] = faults
        return filled

    # Sites ----------------------------------------------------------------------------

    def _called(self, method: str, args: Any) -> list[Any]:
        if self._sites is None:
            self._sites = policy_sites(self.pool)
        return self._sites.call(method, args, plain=True)

    def _asked(self, method: str, *args: Any) -> list[Any]:
        """What every site answers; asked again where a worker has died meanwhile."""
        while True:  # the pool raises when its limit of restarts is reached
            found = self._called(method, (self._published.orders(self._norm), *args))
            if not any(isinstance(one, Fault) for one in found):
                return found

    def _replaced(self, buffer: RolloutBuffer, found: Sequence[Any]) -> list[Any]:
        """Padding rows where a worker died, and the new episodes in its successor."""
        after = self._asked("boundary")
        fragments = []
        for shard, one, boundary in zip(self._shards, found, after, strict=True):
            if isinstance(one, Fault):
                buffer.lose(shard, one)
                one = Fragment((), {}, None, boundary.carry, boundary)
            fragments.append(one)
        return fragments

    # Memory ---------------------------------------------------------------------------

    def _new_buffer(self, rows: int) -> tuple[RolloutBuffer, SegmentAddress | None]:
        """A buffer of all slots, in memory that no rollout uses any more."""
        slots = self._shards[-1].stop
        started = np.zeros(slots, np.bool_)
        spaces = self._obs_space, self._action_space
        if self._rows != rows:
            shapes = shapes_of(RolloutBuffer(*spaces, rows, started))
            self._rows, self._shapes = rows, shapes  # both: Ctrl-C may come before
        extras = {
            name: ((rows, slots, *shape), dtype)
            for name, (shape, dtype) in self._extras.items()
        }
        wanted = self._shapes | extras
        fitting = [one for one in self._segments if one.shapes == wanted]
        segment = next((one for one in fitting if one.free), None)
        if segment is None:
            segment = Segment(wanted)
            self._segments = [segment, *fitting][: KEPT_SEGMENTS + 1]
        memory = segment.lend()
        return RolloutBuffer(*spaces, rows, started, memory=memory), segment.address

    # Joining --------------------------------------------------------------------------

    def _joined(self, parts: Sequence[Boundary]) -> Boundary:
        space = self._obs_space
        arrays = [[part.array_of(one.obs) for one in parts] for part in space.parts]
        return Boundary(
            space.batch([np.concatenate(each) for each in arrays]),
            np.concatenate([one.started for one in parts]),
            carries.joined([one.carry for one in parts]),
        )


def shapes_of(buffer: RolloutBuffer) -> dict[str, Any]:
    """Shape and dtype of each array that can be in shared memory."""
    return {
        name: (array.shape, array.dtype)
        for name, array in buffer.arrays().items()
        if array.dtype != object
    }


def _adopt(buffer: RolloutBuffer, slots: range, fragment: Fragment) -> None:
    """Take over what a site has filled."""
    part = slice(slots.start, slots.stop)
    buffer.adopt(part, fragment.extras, fragment.arrays, fragment.ends)
    buffer.faults += fragment.faults
