"""A collector runs a policy in the slots of a pool, and returns rollouts.

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
own past alone, so all three modes write the same rollout.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from itertools import cycle
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from corral.core import Policy, Step
from corral.engine.keywords import check_choice, checked_keywords
from corral.engine.pool import Pool
from corral.engine.pool.groups import two_groups
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import OptionError, OrderError
from corral.rollouts import carry as carries
from corral.rollouts.actor import Actor, check_pool
from corral.rollouts.normalise import ObsNorm, RewardNorm, check_finite
from corral.rollouts.rollout import Rollout
from corral.rollouts.rollout_buffer import RolloutBuffer
from corral.rollouts.space_rows import Array, At, SpaceParts, joined, owned, some_of

MODES = ("sync", "two_groups", "first_ready")


class Collector:
    """Collects rollouts one after the other; episodes continue from each to the next.

        with corral.Pool("CartPole-v1", num_envs=8, seed=0) as pool:
            collector = corral.Collector(pool, policy)
            while learning:
                rollout = collector.collect(128)
                learn(rollout)

    Args:
        pool: a pool with autoreset "same_step" or "next_step". Send nothing to it
            between two rollouts: episodes continue from one to the next.
        policy: see `corral.Policy`.
        mode: "sync" calls the policy for all slots at once; "two_groups" for one half
            while the other half steps; "first_ready" for the first that are ready.
        min_slots: ("first_ready") number of slots to wait for (default: half of them).
        obs_norm: normalises observations; updated with every rollout.
        reward_norm: normalises rewards; updated with every rollout.
    """

    @checked_keywords(pool=Pool)
    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        *,
        mode: str = "sync",
        min_slots: int | None = None,
        obs_norm: ObsNorm | None = None,
        reward_norm: RewardNorm | None = None,
    ) -> None:
        check_pool(pool)
        self.pool = pool
        self.seed = pool.seed
        """The root of all seeds: the pool's seed when the collector was made."""
        self._root = pool.seed
        self._obs_space = SpaceParts(pool.spec.observation_space)
        self._action_space = SpaceParts(pool.spec.action_space)
        self._slots = pool.num_envs
        self._same_step = pool.autoreset == "same_step"
        self.choose(mode, min_slots)
        self.obs_norm = obs_norm
        self.reward_norm = reward_norm
        self._actor = Actor(policy, self._action_space, self._slots, obs_norm)
        self._seeds = [-1] * self._slots
        self._now: Step | None = None
        """The step that the next row starts from; None if episodes have to be reset."""
        self._sends = -1
        """The pool's send count at that step."""

    def choose(self, mode: str, min_slots: int | None = None) -> None:
        """Switch to another mode; rollouts are the same in each."""
        check_choice("mode", mode, MODES)
        if min_slots is not None and mode != "first_ready":
            raise OptionError(f'min_slots is for mode="first_ready"; mode is {mode!r}')
        if min_slots is not None and not 1 <= min_slots <= self._slots:
            raise OptionError(
                f"min_slots is {min_slots!r}; it must be from 1 to {self._slots}"
            )
        self.mode = mode
        self.min_slots = min_slots

    @property
    def policy(self) -> Policy:
        """The policy that acts; can be replaced between two rollouts."""
        return self._actor.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        if policy is not self._actor.policy:
            self._actor.follow(policy)

    # Collecting -----------------------------------------------------------------------

    def collect(self, steps: int, *, end_episodes: int | None = None) -> Rollout:
        """Collect the next rows of every slot.

        Args:
            steps: number of rows.
            end_episodes: truncate the running episodes after the last row, as
                `end_episodes` does with this number.
        """
        if steps < 1 or steps != int(steps):
            raise OptionError(f"steps is {steps!r}; it must be an integer >= 1")
        if self.pool.autoreset in ("off", "hold"):
            raise OptionError(
                f'the pool has autoreset="{self.pool.autoreset}", so no episode '
                'follows; make the pool with autoreset="same_step" or "next_step", or '
                "use run_episodes"
            )
        now = self._begin(self._root) if self._now is None else self._now
        if self._sends != self.pool.send_count:
            raise OrderError(
                "the pool was stepped or reset outside this collector since its last "
                "rollout, so its episodes cannot continue; call end_episodes(number) "
                "to start new ones, or give each collector a pool of its own"
            )
        self._actor.refresh(now.started)
        first_carry = self._actor.copied_carry()
        buffer = RolloutBuffer(
            self._obs_space, self._action_space, int(steps), now.started, self.obs_norm
        )
        self._now = None  # if anything fails below, the next call resets
        fill = {
            "sync": self._sync,
            "two_groups": self._two_groups,
            "first_ready": self._first_ready,
        }
        now = fill[self.mode](buffer, now)
        self._actor.own_last()  # the caller will own the buffer
        if end_episodes is not None:
            now = self._cut_off(buffer, now, end_episodes)
        rollout = self._finished(buffer, now, first_carry)
        self._now, self._sends = now, self.pool.send_count
        return rollout

    # Episodes -------------------------------------------------------------------------

    def end_episodes(self, number: int) -> None:
        """End all running episodes; the next ones have seeds from (seed, slot, number).

        Rollouts after this call depend on the policy, the pool's seed and `number`, and
        on nothing that was collected before: a run that resumes with this call goes on
        like an uninterrupted run that made it. The last row of the rollout before is
        bootstrapped with its `next_value`, as if the episode had been truncated.
        """
        self._begin(self._numbered(number))

    def _numbered(self, number: int) -> int:
        return episode_seed(self.seed, number, SeedDomain.NUMBERED)

    def _begin(self, root: int) -> Step:
        """Reset every slot; its episodes have seeds from (root, slot, 0, 1, ...)."""
        self._now = None
        self.pool.drain()
        # If anything fails from here on, the next attempt uses other seeds.
        self._root = episode_seed(root, SeedDomain.RETRIES)
        now = owned(self._obs_space, self.pool.reset(seed=root))
        self._seeds[:] = now.seed.tolist()
        self._actor.start(range(self._slots), self._seeds)
        self._now, self._sends = now, self.pool.send_count
        return now

    def _cut_off(self, buffer: RolloutBuffer, now: Step, number: int) -> Step:
        """Truncate the running episodes after the last row, and start new ones."""
        running = buffer.valid[-1] & ~(buffer.terminated[-1] | buffer.truncated[-1])
        for slot in np.flatnonzero(running).tolist():
            buffer.truncate_after_last_row(now, slot, self._actor.carry_of([slot]))
        return self._begin(self._numbered(number))

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

    # The rollout ----------------------------------------------------------------------

    def _finished(self, buffer: RolloutBuffer, now: Step, first_carry: Any) -> Rollout:
        actor, obs_norm, space = self._actor, self.obs_norm, self._obs_space
        places = sorted(buffer.ends)
        ends = [buffer.ends[place] for place in places]
        final_obs = space.stacked([end.final_obs for end in ends])
        next_obs = space.copied(now.obs)
        if obs_norm is not None:  # with the scale of all rows, which is updated below
            final_obs, next_obs = obs_norm(final_obs), obs_norm(next_obs)
        bootstrap = np.zeros((buffer.rows, buffer.slots))
        cut = [number for number, end in enumerate(ends) if end.bootstrapped]
        if cut:
            carry = carries.joined([ends[number].carry for number in cut])
            value = actor.value(space.some(final_obs, cut), carry, len(cut))
            bootstrap[tuple(zip(*(places[n] for n in cut), strict=True))] = value
        next_value = actor.value(next_obs, actor.carry, buffer.slots)
        return Rollout(
            obs=buffer.obs.whole(),
            action=buffer.action.whole(),
            reward=self._normalised(buffer),
            terminated=buffer.terminated,
            truncated=buffer.truncated,
            started=buffer.started,
            valid=buffer.valid,
            extras=buffer.extras,
            final_obs=final_obs,
            next_obs=next_obs,
            next_started=now.started.copy(),
            first_carry=first_carry,
            next_carry=actor.copied_carry(),
            bootstrap=bootstrap,
            next_value=next_value,
            episodes=tuple(end.summary for end in ends if end.summary is not None),
            faults=tuple(end.fault for end in ends if end.fault is not None),
        )

    def _normalised(self, buffer: RolloutBuffer) -> NDArray[np.float64]:
        """Update the normalisers; returns the rewards of the rollout."""
        raw = () if buffer.raw is None else buffer.raw.whole()
        if self.obs_norm is not None or self.reward_norm is not None:
            # Before either is updated.
            check_finite(raw, buffer.reward, buffer.valid)
        if self.obs_norm is not None:
            self.obs_norm.update(raw, buffer.valid)
        if self.reward_norm is None:
            return buffer.reward
        return self.reward_norm(buffer.reward, buffer.started, buffer.valid)

    # Checkpoints ----------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state to save beside the policy, after `end_episodes`."""
        return {
            "obs_norm": self.obs_norm and self.obs_norm.state_dict(),
            "reward_norm": self.reward_norm and self.reward_norm.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state; then call `end_episodes` with the same number."""
        for name in ("obs_norm", "reward_norm"):
            norm, saved = getattr(self, name), state[name]
            if (norm is None) != (saved is None):
                was = "without" if saved is None else "with"
                raise OptionError(
                    f"the state was saved by a collector {was} {name}; make this one "
                    "the same way"
                )
            if norm is not None:
                norm.load_state_dict(saved)


_COLLECTORS: weakref.WeakKeyDictionary[Pool, Collector] = weakref.WeakKeyDictionary()
"""The collectors of `collect`, by pool."""


@checked_keywords(pool=Pool)
def collect(
    pool: Pool,
    policy: Policy,
    steps: int = 128,
    *,
    mode: str = "sync",
    min_slots: int | None = None,
) -> Rollout:
    """Collect the next rows of every slot; episodes continue from call to call.

        rollout = corral.collect(pool, policy, steps=128)

    Args:
        pool: as for `Collector`, which can also normalise and be saved.
        policy: as for `Collector`.
        steps: number of rows.
        mode: as for `Collector`.
        min_slots: as for `Collector`.
    """
    check_pool(pool)
    collector = _COLLECTORS.get(pool)
    if collector is None:
        # By proxy: otherwise this table would keep a pool open that nothing else uses.
        proxy = cast(Pool, weakref.proxy(pool))
        collector = _COLLECTORS[pool] = Collector(proxy, policy)
    collector.policy = policy
    collector.choose(mode, min_slots)
    return collector.collect(steps)
