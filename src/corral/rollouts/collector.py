"""A collector runs a policy in the slots of a pool, and returns rollouts.

filled = filler.fill(steps)        rows of every slot: see `filling`
rollout = finished(filled)         values to bootstrap from, normalisers
"""

from __future__ import annotations

import weakref
from numbers import Real
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from corral.core import Policy, has_weights
from corral.engine.keywords import check_choice, checked_keywords
from corral.engine.pool import Pool
from corral.engine.worker.seeds import SeedDomain, episode_seed
from corral.errors import OptionError, OrderError
from corral.rollouts import carry as carries
from corral.rollouts.actor import check_policy, check_pool, values_of
from corral.rollouts.filling import Boundary, Filled, Filler
from corral.rollouts.normalise import ObsNorm, RewardNorm, check_finite
from corral.rollouts.published_policy import (
    ACT_IN,
    PolicyFactory,
    PublishedPolicy,
    check_factory,
)
from corral.rollouts.rollout import Rollout
from corral.rollouts.rollout_buffer import RolloutBuffer
from corral.rollouts.site_group import SiteGroup
from corral.rollouts.space_rows import SpaceParts
from corral.rollouts.workers_filling import WorkersFiller


class Collector:
    """Collects rollouts one after the other; episodes continue from each to the next.

        with corral.Pool("CartPole-v1", num_envs=8, seed=0) as pool:
            collector = corral.Collector(pool, policy)
            while learning:
                rollout = collector.collect(128)
                learn(rollout)

    Args:
        pool: a pool with autoreset "same_step" or "next_step". Send nothing to it
            between two rollouts: episodes continue from one to the next. Or a
            `corral.Cluster`, where the policy acts beside the envs.
        policy: see `corral.Policy`.
        mode: "sync" calls the policy for all slots at once; "two_groups" for one half
            while the other half steps; "first_ready" for the first that are ready.
        min_slots: ("first_ready") number of slots to wait for (default: half of them).
        obs_norm: normalises observations; updated with every rollout.
        reward_norm: normalises rewards; updated with every rollout.
        act_in: "caller", or "workers": each worker has a copy of the policy and steps
            its slots with it, without a message for every step. Rollouts are the same
            if a row's decision does not depend on its batch. Before a rollout the
            workers get what has changed: the weights of a policy with `weights` and
            `load_weights`, or else the pickled policy.
        policy_factory: (act_in="workers") makes each worker's copy of the policy, once;
            for policies that cannot be pickled. Only weights are sent to such copies.
    """

    @checked_keywords(pool=Pool)
    def __init__(
        self,
        pool: Pool | SiteGroup,
        policy: Policy,
        *,
        mode: str = "sync",
        min_slots: int | None = None,
        obs_norm: ObsNorm | None = None,
        reward_norm: RewardNorm | None = None,
        act_in: str = "caller",
        policy_factory: PolicyFactory | None = None,
    ) -> None:
        check_pool(pool)
        check_choice("act_in", act_in, ACT_IN)
        act_in = "workers" if isinstance(pool, SiteGroup) else act_in
        check_factory(policy_factory, act_in)
        check_policy(policy, policy_factory)
        self.pool = pool
        self._act_in = act_in
        # The root of all seeds: the pool's seed when the collector was made.
        self.seed = pool.seed
        self._root = pool.seed
        self._obs_space = SpaceParts(pool.spec.observation_space)
        self.obs_norm = obs_norm
        self.reward_norm = reward_norm
        self._filler: Filler | WorkersFiller
        if isinstance(pool, SiteGroup):
            self._published = pool.published(policy, policy_factory)
            self._filler = pool.filler(self._published, obs_norm)
        elif act_in == "workers":
            self._published = PublishedPolicy(policy, True, policy_factory)
            self._filler = WorkersFiller(pool, self._published, obs_norm)
        else:
            self._published = PublishedPolicy(policy, False)
            inline = pool.layout.backend == "serial"
            self._filler = Filler(pool, policy, obs_norm, inline)
        self.choose(mode, min_slots)
        # Whether episodes continue with the next row; if not, they are reset.
        self._running = False
        # The pool's send count after the last row.
        self._sends = -1

    def choose(self, mode: str, min_slots: int | None = None) -> None:
        """Switch to another mode; rollouts are the same in each."""
        self._filler.choose(mode, min_slots)
        self.mode, self.min_slots = mode, min_slots

    @property
    def policy(self) -> Policy:
        """The policy that acts; can be replaced between two rollouts."""
        return self._published.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        if policy is not self.policy:
            check_policy(policy, self._published.factory)
            self._published.follow(policy, self._published.factory)
            self._filler.follow(policy)

    # Collecting -----------------------------------------------------------------------

    def collect(self, steps: int, *, end_episodes: int | None = None) -> Rollout:
        """Collect the next rows of every slot.

        Args:
            steps: number of rows.
            end_episodes: truncate the running episodes after the last row, as
                `end_episodes` does with this number.
        """
        if not isinstance(steps, Real) or steps < 1 or steps % 1:
            raise OptionError(f"steps is {steps!r}; it must be an integer >= 1")
        if self.pool.autoreset in ("off", "hold"):
            raise OptionError(
                f'the pool has autoreset="{self.pool.autoreset}", so no episode '
                'follows; make the pool with autoreset="same_step" or "next_step", or '
                "use run_episodes"
            )
        if not self._running:
            self._begin(self._root)
        if self._sends != self.pool.send_count:
            raise OrderError(
                "the pool was stepped or reset outside this collector since its last "
                "rollout, so its episodes cannot continue; call end_episodes(number) "
                "to start new ones, or give each collector a pool of its own"
            )
        self._running = False  # if anything fails below, the next call resets
        version = self._publish()
        filled = self._filler.fill(int(steps))
        if end_episodes is not None:
            self._cut_off(filled, end_episodes)
        rollout = self._finished(filled, version)
        if filled.error is not None:
            filled.error.rollout = rollout
            raise filled.error
        self._running, self._sends = True, self.pool.send_count
        return rollout

    def _publish(self) -> int:
        """Publish the policy; the version of its weights."""
        published = self._published
        # In the caller, a policy without weights has one version.
        if self._act_in == "caller" and not has_weights(published.policy):
            return 0
        return published.publish()

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

    def _begin(self, root: int) -> Boundary:
        """Reset every slot; its episodes have seeds from (root, slot, 0, 1, ...)."""
        self._running = False
        self.pool.drain()
        # If anything fails from here on, the next attempt uses other seeds.
        self._root = episode_seed(root, SeedDomain.RETRIES)
        self._publish()
        start = self._filler.begin(root)
        self._running, self._sends = True, self.pool.send_count
        return start

    def _cut_off(self, filled: Filled, number: int) -> None:
        """Truncate the running episodes after the last row, and start new ones."""
        buffer, after = filled.buffer, filled.after
        running = buffer.valid[-1] & ~(buffer.terminated[-1] | buffer.truncated[-1])
        for slot in np.flatnonzero(running).tolist():
            carry = carries.rows_of(after.carry, [slot])
            buffer.truncate_after_last_row(after.obs, slot, carry)
        filled.after = self._begin(self._numbered(number))

    # The rollout ----------------------------------------------------------------------

    def _finished(self, filled: Filled, version: int) -> Rollout:
        buffer, after = filled.buffer, filled.after
        policy, obs_norm, space = self.policy, self.obs_norm, self._obs_space
        ends = buffer.packed_ends()
        final_obs = space.batch(ends.final_obs)
        next_obs = after.obs
        if obs_norm is not None:  # with the scale of all rows, which is updated below
            final_obs, next_obs = obs_norm(final_obs), obs_norm(next_obs)
        next_value = values_of(policy, next_obs, after.carry, buffer.slots)
        bootstrap = np.zeros((buffer.rows, *next_value.shape))
        cut = np.flatnonzero(ends.bootstrapped)
        if len(cut):
            last = space.some(final_obs, cut)
            row, slot = ends.numbers[cut, :2].T
            bootstrap[row, slot] = values_of(policy, last, ends.carry, len(cut))
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
            next_started=after.started,
            first_carry=filled.first_carry,
            next_carry=after.carry,
            bootstrap=bootstrap,
            next_value=next_value,
            episodes=ends.episodes(),
            faults=(*buffer.faults, *ends.faults.values()),
            version=np.full(buffer.valid.shape, version, np.int64),
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


# The collectors of `collect`, by pool.
_COLLECTORS: weakref.WeakKeyDictionary[Pool, Collector] = weakref.WeakKeyDictionary()


@checked_keywords(pool=Pool)
def collect(
    pool: Pool,
    policy: Policy,
    steps: int = 128,
    *,
    mode: str = "sync",
    min_slots: int | None = None,
    act_in: str = "caller",
) -> Rollout:
    """Collect the next rows of every slot; episodes continue from call to call.

        rollout = corral.collect(pool, policy, steps=128)

    Args:
        pool: as for `Collector`, which can also normalise and be saved.
        policy: as for `Collector`.
        steps: number of rows.
        mode: as for `Collector`.
        min_slots: as for `Collector`.
        act_in: as for `Collector`; with another one than before, new episodes start.
    """
    check_pool(pool)
    collector = before = _COLLECTORS.get(pool)
    if collector is None or collector._act_in != act_in:
        # By proxy: otherwise this table would keep a pool open that nothing else uses.
        proxy = cast(Pool, weakref.proxy(pool))
        collector = Collector(proxy, policy, act_in=act_in)
        if before is not None:
            collector._root = before._root  # other episodes than those before
        _COLLECTORS[pool] = collector
    collector.policy = policy
    collector.choose(mode, min_slots)
    return collector.collect(steps)
