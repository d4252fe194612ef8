"""First come, first served: batches of the slots that are ready.

    envs.async_reset(seed=0)
    obs, rewards, terminations, truncations, infos = envs.recv()     the first K ready
    envs.send(policy(obs))                                           to the same K

The way EnvPool's and PufferLib's users work, in Gymnasium's words. Which slots a batch
has is `envs.slots`; it, `valid` and `started` are attributes, never info keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from corral.api.episode_ends import finals_of
from corral.api.pool_env import PoolOwner
from corral.core import Autoreset, Step
from corral.engine.adapters.factories import EnvSource
from corral.engine.keywords import checked_keywords, is_count
from corral.engine.layout.infos import add_info
from corral.engine.pool import Pool, PoolOptions, Stats
from corral.errors import OptionError, OrderError

Batch = tuple[
    Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
]
"""Observations, rewards, terminations, truncations, infos; each of `batch_size`."""


@checked_keywords(onward=Pool)
def make_async(
    env: EnvSource,
    num_envs: int | None = None,
    batch_size: int | None = None,
    *,
    autoreset: Autoreset = "same_step",
    **options: Any,
) -> AsyncEnv:
    """Many environments, of which the first `batch_size` that are ready come back.

    Example::

        envs = corral.make_async("Ant-v5", num_envs=32, batch_size=16)
        envs.async_reset(seed=0)
        for obs, rewards, terminations, truncations, infos in envs:
            envs.send(policy(obs))

    Args:
        env: an id, "module:function", a factory, Gymnasium's spec of an env, or a list
            with one of those per slot.
        num_envs: how many; known already when a list of factories is given.
        batch_size: how many slots come back together; all of them if None.
        autoreset: what happens at the end of an episode.
        **options: everything `corral.Pool` takes.
    """
    asked = PoolOptions(autoreset=autoreset, **options)
    pool = Pool.with_options(env, num_envs, asked)
    try:
        return AsyncEnv(pool, batch_size)
    except OptionError:
        pool.close()
        raise


class AsyncEnv(PoolOwner):
    """Batches of the slots that are ready, over a pool; made by `corral.make_async`."""

    def __init__(self, pool: Pool, batch_size: int | None = None) -> None:
        self.pool = pool
        self.layout = pool.layout
        self.num_envs = pool.num_envs
        self.batch_size = self._checked(batch_size)
        self.metadata = pool.spec.metadata
        self.render_mode = pool.spec.render_mode
        self.single_observation_space = pool.spec.observation_space
        self.single_action_space = pool.spec.action_space
        self.observation_space = batch_space(
            self.single_observation_space, self.batch_size
        )
        self.action_space = batch_space(self.single_action_space, self.batch_size)
        self._last: Step | None = None

    def _checked(self, size: int | None) -> int:
        if size is None:
            return self.num_envs
        if not is_count(size) or size > self.num_envs:
            raise OptionError(
                f"batch_size is {size!r}; it must be an integer from 1 to "
                f"{self.num_envs}, the number of slots"
            )
        return int(size)

    # Sending --------------------------------------------------------------------------

    def async_reset(
        self,
        slots: Sequence[int] | NDArray[np.integer] | None = None,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Start an episode in every slot, or in these; `recv` takes the results.

        Args:
            slots: none of them may be under way. If None, all are reset, and whatever
                is under way is waited for and dropped.
            seed: a new root, from which every episode gets a seed of its own.
            options: for the envs' resets.
        """
        if slots is None and self.pool.waiting:
            self.pool.recv(copy=False)
        self.pool.send_reset(slots, seed=seed, options=options)

    def send(
        self, actions: Any, slots: Sequence[int] | NDArray[np.integer] | None = None
    ) -> None:
        """Step the slots of the last `recv`, or these; actions in the same order."""
        self.pool.send(actions, self.slots if slots is None else slots)

    # Receiving ------------------------------------------------------------------------

    def recv(self, timeout: float | None = None) -> Batch:
        """Wait for `batch_size` results and take them; among many, the oldest."""
        under_way = self.pool.waiting
        if under_way < self.batch_size and not self.pool.closed:
            raise OrderError(
                f"a batch has {self.batch_size} slots and {under_way} have a command "
                f"under way; {self._advice()}"
            )
        # Of all slots together the pool has a view, which costs less than a choice.
        size = None if self.batch_size == self.num_envs else self.batch_size
        self._last = step = self.pool.recv(size, size, timeout=timeout)
        return (
            step.obs,
            step.reward,
            step.terminated,
            step.truncated,
            self._infos(step),
        )

    def _advice(self) -> str:
        if self._last is None:
            return "async_reset first"
        return "send to what was received, or take the rest by pool.recv()"

    def _infos(self, step: Step) -> dict[str, Any]:
        infos = step.infos.to_vector(len(step)) if step.infos else {}
        if self.pool.autoreset == "same_step":
            for position, final in finals_of(step, self.single_observation_space):
                add_info(infos, final, position, len(step))
        return infos

    def __iter__(self) -> Iterator[Batch]:
        """Batches for ever; send before asking for the next."""
        while True:
            yield self.recv()

    # Both at once ---------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset every slot and take the first batch."""
        self.async_reset(seed=seed, options=options)
        obs, _, _, _, infos = self.recv()
        return obs, infos

    def step(
        self, actions: Any, slots: Sequence[int] | NDArray[np.integer] | None = None
    ) -> Batch:
        """Send and recv; what comes back need not be the slots that were sent to."""
        self.send(actions, slots)
        return self.recv()

    # The last batch -------------------------------------------------------------------

    @property
    def last(self) -> Step:
        """The last batch as the pool gave it: seeds, returns and final_obs too."""
        if self._last is None:
            raise OrderError("nothing was received yet: async_reset, then recv")
        return self._last

    @property
    def slots(self) -> NDArray[np.intp]:
        """Which slots the last batch has, ascending."""
        return self.last.slots

    @property
    def valid(self) -> NDArray[np.bool_]:
        """False where the last batch's row is filler: a next-step reset."""
        return self.last.valid

    @property
    def started(self) -> NDArray[np.bool_]:
        """True where the last batch's observation is the first of an episode."""
        return self.last.started

    # The rest -------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Who was busy and what took how long, since the envs were made."""
        return self.pool.stats()
