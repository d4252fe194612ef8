"""Three ways to fill a rollout buffer: for which slots the policy acts, and when.

    sync          all slots together
    two_groups    one half, while the other half steps
    first_ready   the slots whose results arrived first

Each slot acts as many times as the buffer has rows. The rows of a slot depend on its
own past alone, so all three modes write the same rollout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from corral.core import Step
from corral.engine.pool import Pool
from corral.engine.pool.groups import two_groups as in_two_groups
from corral.rollouts.actor import Actor
from corral.rollouts.kept_steps import joined, owned, some_of
from corral.rollouts.rollout_buffer import RolloutBuffer
from corral.rollouts.space_rows import At, SpaceParts


@dataclass(slots=True)
class CollectLoop:
    """Steps a pool with an actor until the rollout buffer is full."""

    _pool: Pool
    _actor: Actor
    _buffer: RolloutBuffer
    _space: SpaceParts
    """Of observations."""
    _seeds: list[int]
    """The seed of each slot's current episode."""
    _same_step: bool

    # Modes ----------------------------------------------------------------------------

    def sync(self, step: Step) -> Step:
        """All slots together; returns the step after the last row."""
        decide, conclude = self._decide, self._conclude
        recv = self._pool.recv
        for row in range(self._buffer.rows):
            decide(row, step, None)
            step = recv(copy=False)
            conclude(row, step)
        return owned(self._space, step)

    def two_groups(self, step: Step) -> Step:
        """Act for one half of the slots while the other half steps."""
        groups = in_two_groups(self._pool)
        turns = cycle(groups)
        parts = [some_of(self._space, step, group) for group in groups]
        recv = self._pool.recv
        return self._in_parts(parts, lambda: recv(slots=next(turns), copy=False))

    def first_ready(self, step: Step, count: int) -> Step:
        """Act for the slots whose results arrived first, `count` or more of them."""
        pool = self._pool
        return self._in_parts(
            [step], lambda: pool.recv(min_slots=min(count, pool.waiting), copy=False)
        )

    def _in_parts(self, parts: list[Step], receive: Callable[[], Step]) -> Step:
        buffer, pool = self._buffer, self._pool
        row = np.zeros(buffer.slots, np.intp)
        """By slot: the row that it fills next."""
        for part in parts:
            self._decide((0, part.slots), part, part.slots)
        done = []
        while pool.waiting:
            step = receive()
            rows = row[step.slots]
            self._conclude((rows, step.slots), step)
            rows = row[step.slots] = rows + 1
            on = rows < buffer.rows
            if not on.all():
                done.append(some_of(self._space, step, ~on))
                if not on.any():
                    continue
                step = some_of(self._space, step, on)
            self._decide((rows[on], step.slots), step, step.slots)
        return joined(self._space, done)

    # A row ----------------------------------------------------------------------------

    def _decide(self, at: At, step: Step, slots: NDArray[np.intp] | None) -> None:
        buffer = self._buffer
        seen, decision = self._actor.act(step)
        whole = slots is None or len(slots) == buffer.slots
        self._pool.send(decision.action, None if whole else slots)
        # Stored while the workers step.
        actions = buffer.add_decision(at, step, seen, decision)
        self._actor.acted(slots, actions)

    def _conclude(self, at: At, step: Step) -> None:
        self._buffer.reward[at] = step.reward
        count = np.count_nonzero
        # With same_step every episode that ends starts again in the same step.
        if count(step.started) or (not self._same_step and count(step.ended)):
            self._buffer.add_flags(at, step)
            self._follow_episodes(at, step)

    def _follow_episodes(self, at: At, step: Step) -> None:
        """Record episodes that ended, and start those that began.

        Slot by slot: usually there are few, and then numbers are quicker than arrays.
        """
        buffer, seeds = self._buffer, self._seeds
        ended, started = step.ended, step.started
        rows = None if isinstance(at, int) else at[0].tolist()
        begun: list[int] = []
        for position in (ended | started).nonzero()[0].tolist():
            slot = step.slots.item(position)
            if ended.item(position):
                row = at if rows is None else rows[position]
                if buffer.add_end(row, step, position, seeds[slot]):
                    buffer.add_truncation(row, slot, self._actor.carry_of([slot]))
            if started.item(position):
                seeds[slot] = step.seed.item(position)
                begun.append(slot)
        if begun:
            self._actor.start(begun, [seeds[slot] for slot in begun])
