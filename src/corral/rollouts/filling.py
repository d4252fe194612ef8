"""Fills rows: a policy acts in the slots of a pool.

    seen, decision = actor.act(step)       the policy decides
    pool.send(decision.action)             the workers step
    buffer.add_decision(...)               meanwhile, the decision is stored
    step = pool.recv()
    buffer.reward[row] = step.reward       and then its result

Three modes fill the buffer: for which slots the policy acts, and when.

    sync          all slots together
    two_groups    one half, while the other half steps
    first_ready   the slots whose results arrived first

Each slot acts as many times as the buffer has rows. The rows of a slot depend on its
own past alone, so all three modes write the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Policy, Step
from corral.engine.keywords import check_choice
from corral.engine.pool import Pool
from corral.engine.pool.groups import two_groups
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import CorralError, Fault, OptionError
from corral.rollouts.actor import Actor
from corral.rollouts.normalise import ObsNorm
from corral.rollouts.rollout_buffer import RolloutBuffer
from corral.rollouts.space_rows import Array, At, SpaceParts, joined, owned, some_of

MODES = ("sync", "two_groups", "first_ready")


@dataclass(slots=True)
class Boundary:
    """Where the rows of one rollout end and those of the next begin; owns its memory.

    Attributes:
        obs: [slots, ...], not normalised.
        started: [slots]: True where `obs` is the first observation of an episode.
        carry: The policy's carry; one row per slot.
    """

    obs: Any
    started: NDArray[np.bool_]
    carry: Any


@dataclass(slots=True)
class Filled:
    """The next rows of every slot.

    Attributes:
        first_carry: The policy's carry before row 0; one row per slot.
        after: Follows the last row.
        error: What to raise, if some rows were lost for good.
    """

    buffer: RolloutBuffer
    first_carry: Any
    after: Boundary
    error: CorralError | None = None


class Filler:
    """Fills rows of every slot, one buffer after the other; episodes continue.

        filler.begin(seed)
        filled = filler.fill(128)

    Args:
        pool: with autoreset "same_step" or "next_step".
        policy: acts in this process.
        obs_norm: normalises the policy's observations; it is not updated here.
        inline: whether the envs are in this process too: then they step in the same
            call, which is quicker than sending and receiving.
        first_number: of slot 0, as the policy sees it, where the pool is a part of
            another.
        mark: as for `Actor`.
    """

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        obs_norm: ObsNorm | None,
        inline: bool = False,
        first_number: int = 0,
        mark: Callable[[int], None] | None = None,
    ) -> None:
        self.pool = pool
        self._obs_space = SpaceParts(pool.spec.observation_space)
        self._action_space = SpaceParts(pool.spec.action_space)
        self._slots = pool.num_envs
        self._same_step = pool.autoreset == "same_step"
        self._norm = obs_norm
        self._inline = inline
        self._first_number = first_number
        self._actor = Actor(
            *(policy, self._action_space, self._slots, obs_norm),
            *(pool.copies, first_number, mark),
        )
        # Whether no row has been filled yet since another policy was set.
        self._followed = False
        self._seeds = [-1] * self._slots
        # The step that the next row starts from.
        self._now: Step | None = None
        self.choose("sync")

    def choose(self, mode: str, min_slots: int | None = None) -> None:
        """Switch to another mode; rows are the same in each."""
        check_choice("mode", mode, MODES)
        if min_slots is not None and mode != "first_ready":
            raise OptionError(f'min_slots is for mode="first_ready"; mode is {mode!r}')
        if min_slots is not None and not 1 <= min_slots <= self._slots:
            raise OptionError(
                f"min_slots is {min_slots!r}; it must be from 1 to {self._slots}"
            )
        self.mode = mode
        self.min_slots = min_slots

    def follow(self, policy: Policy) -> None:
        """Act with another policy from now on, with its initial carry."""
        self._actor.follow(policy)
        self._followed = True

    def update(self, policy: Policy) -> None:
        """Act with a copy of the same policy from now on; carries continue."""
        self._actor.policy = policy

    def begin(self, root: int | None) -> Boundary:
        """Reset every slot; its episodes have seeds from (root, slot, 0, 1, ...).

        None continues with the episodes that follow in each slot.
        """
        self._now = now = owned(self._obs_space, self.pool.reset(seed=root))
        self._seeds[:] = now.seed.tolist()
        drawn = self._seeds
        if root is not None and min(drawn) < 0:
            # Of a batch that restarts its episodes itself, one slot alone has a seed.
            first = self._first_number
            drawn = [
                episode_seed(root, first + slot, SeedDomain.UNSEEDED)
                if seed < 0
                else seed
                for slot, seed in enumerate(drawn)
            ]
        self._actor.start(range(self._slots), drawn)
        return self.boundary()

    @property
    def begun(self) -> bool:
        """Whether there is a step that the next row can start from."""
        return self._now is not None

    def boundary(self) -> Boundary:
        """Where the next row starts from."""
        now, carry = self._now, self._actor.copied_carry()
        assert now is not None, "begin comes first"
        return Boundary(self._obs_space.copied(now.obs), now.started.copy(), carry)

    def faults(self) -> tuple[Fault, ...]:
        """What ended the episodes before those that have just begun."""
        now = self._now
        if now is None or not now.infos:
            return ()
        found = (now.infos.of(position).get("fault") for position in range(len(now)))
        return tuple(fault for fault in found if fault is not None)

    def fill(
        self, rows: int, memory: dict[str, Array] | None = None, first_slot: int = 0
    ) -> Filled:
        """Fill the next rows of every slot.

        Args:
            rows: how many.
            memory: arrays to use where they fit. Observations are then stored as the
                envs returned them.
            first_slot: the number of slot 0, where the pool is a part of another.
        """
        now = self._now
        assert now is not None, "begin comes first"
        # Of another policy, as it is now: it may have learned since it was set.
        self._actor.refresh(None if self._followed else now.started)
        self._followed = False
        first_carry = self._actor.copied_carry()
        norm = self._norm if memory is None else None
        buffer = RolloutBuffer(
            self._obs_space, self._action_space, rows, now.started, norm, memory
        )
        buffer.first_slot = first_slot
        self._now = None  # if anything fails below, `begin` comes first again
        modes = {
            "sync": self._step_inline if self._inline else self._sync,
            "two_groups": self._two_groups,
            "first_ready": self._first_ready,
        }
        self._now = now = modes[self.mode](buffer, now)
        self._actor.own_last()  # the caller will own the buffer
        return Filled(buffer, first_carry, self.boundary())

    # Modes ----------------------------------------------------------------------------

    def _sync(self, buffer: RolloutBuffer, step: Step) -> Step:
        """All slots together; returns the step after the last row."""
        decide, conclude = self._decide, self._conclude
        recv = self.pool.recv
        for row in range(buffer.rows):
            decide(buffer, row, step, None)
            step = recv(copy=False)
            conclude(buffer, row, step)
        return owned(self._obs_space, step)

    def _step_inline(self, buffer: RolloutBuffer, step: Step) -> Step:
        """As `_sync`, without sending and receiving."""
        act, acted = self._actor.act, self._actor.acted
        add, conclude = buffer.add_decision, self._conclude
        step_all, turns = self.pool.step_all, self._actor.in_turns()
        for row in range(buffer.rows):
            seen, decision = act(step, turns)
            before, step = step, step_all(decision.action, copy=False)
            # The step before is intact until the slots are sent to once more.
            acted(None, add(row, before, seen, decision))
            conclude(buffer, row, step)
            del before, seen, decision  # views live until their slots are sent to
        if turns is not None:
            stored_raw = buffer.raw is None
            buffer.add_late(turns.late_extras, self._norm if stored_raw else None)
        return owned(self._obs_space, step)

    def _two_groups(self, buffer: RolloutBuffer, step: Step) -> Step:
        """Act for one half of the slots while the other half steps."""
        groups = two_groups(self.pool)
        turns = cycle(groups)
        parts = [some_of(self._obs_space, step, group) for group in groups]
        recv = self.pool.recv
        return self._in_parts(
            buffer, parts, lambda: recv(slots=next(turns), copy=False)
        )

    def _first_ready(self, buffer: RolloutBuffer, step: Step) -> Step:
        """Act for the slots whose results arrived first, `min_slots` or more."""
        pool = self.pool
        count = self.min_slots or max(1, self._slots // 2)
        return self._in_parts(
            buffer,
            [step],
            lambda: pool.recv(min_slots=min(count, pool.waiting), copy=False),
        )

    def _in_parts(
        self, buffer: RolloutBuffer, parts: list[Step], receive: Callable[[], Step]
    ) -> Step:
        pool = self.pool
        row = np.zeros(buffer.slots, np.intp)  # by slot: the row that it fills next
        for part in parts:
            self._decide(buffer, (0, part.slots), part, part.slots)
        done = []
        while pool.waiting:
            step = receive()
            rows = row[step.slots]
            self._conclude(buffer, (rows, step.slots), step)
            rows = row[step.slots] = rows + 1
            on = rows < buffer.rows
            if not on.all():
                done.append(some_of(self._obs_space, step, ~on))
                if not on.any():
                    continue
                step = some_of(self._obs_space, step, on)
            self._decide(buffer, (rows[on], step.slots), step, step.slots)
        return joined(self._obs_space, done)

    # A row ----------------------------------------------------------------------------

    def _decide(
        self, buffer: RolloutBuffer, at: At, step: Step, slots: Array | None
    ) -> None:
        seen, decision = self._actor.act(step)
        whole = slots is None or len(slots) == buffer.slots
        self.pool.send(decision.action, None if whole else slots)
        # Stored while the workers step.
        actions = buffer.add_decision(at, step, seen, decision)
        self._actor.acted(slots, actions)

    def _conclude(self, buffer: RolloutBuffer, at: At, step: Step) -> None:
        buffer.reward[at] = step.reward
        count = np.count_nonzero
        # With same_step every episode that ends starts again in the same step.
        if count(step.started) or (not self._same_step and count(step.ended)):
            buffer.add_flags(at, step)
            self._follow_episodes(buffer, at, step)

    def _follow_episodes(self, buffer: RolloutBuffer, at: At, step: Step) -> None:
        """Record episodes that ended, and start those that began.

        Slot by slot: usually there are few, and then numbers are quicker than arrays.
        """
        seeds, ended, started = self._seeds, step.ended, step.started
        rows = None if isinstance(at, int) else at[0].tolist()
        begun: list[int] = []
        for position in (ended | started).nonzero()[0].tolist():
            slot = step.slots.item(position)
            if ended.item(position):
                row = at if rows is None else rows[position]
                carry = self._actor.carry_of([slot])
                buffer.add_end(row, step, position, seeds[slot], carry)
            if started.item(position):
                seeds[slot] = step.seed.item(position)
                begun.append(slot)
        if begun:
            self._actor.start(begun, [seeds[slot] for slot in begun])
