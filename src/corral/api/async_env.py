"""Asynchronous vector env: batches of the first slots that are ready.

    envs.async_reset(seed=0)
    obs, rewards, terminations, truncations, infos = envs.recv()     the first K ready
    envs.send(policy(obs))                                           to the same K

As in EnvPool and PufferLib, with Gymnasium's names. `envs.slots` lists the slots of the
batch; it, `valid` and `started` are attributes, never info keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from corral.api.pool_env import PoolAttributes, PoolOwner, finals_of
from corral.core import Autoreset, Step
from corral.engine.adapters.factories import EnvSource
from corral.engine.executors.contract import closed_on_error
from corral.engine.keywords import checked_keywords, is_count
from corral.engine.layout.infos import add_info
from corral.engine.pool import Pool, PoolOptions
from corral.errors import OptionError, OrderError

# Observations, rewards, terminations, truncations, infos; each of `batch_size`.
Batch = tuple[
    Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
]


@checked_keywords(onward=Pool)
def make_async(
    env: EnvSource,
    num_envs: int | None = None,
    batch_size: int | None = None,
    *,
    autoreset: Autoreset = "same_step",
    **options: Any,
) -> AsyncEnv:
    """Make many environments; each batch has the first `batch_size` that are ready.

    Example::

        envs = corral.make_async("Ant-v5", num_envs=32, batch_size=16)
        envs.async_reset(seed=0)
        for obs, rewards, terminations, truncations, infos in envs:
            envs.send(policy(obs))

    Args:
        env: an id, "module:function", a factory, Gymnasium's spec of an env, or a list
            with one of those per slot.
        num_envs: number of envs; not needed with a list of factories.
        batch_size: slots in a batch (default: all of them).
        autoreset: what happens at the end of an episode.
        **options: everything that `corral.Pool` takes.
    """
    asked = PoolOptions(autoreset=autoreset, **options)
    pool = Pool.with_options(env, num_envs, asked)
    with closed_on_error(pool):
        return AsyncEnv(pool, batch_size)


class AsyncEnv(PoolOwner, PoolAttributes):
    """Batches of the slots that are ready; made by `corral.make_async`."""

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
            slots: slots without a pending command. If None, all slots are reset,
                after the pending commands, whose results are dropped.
            seed: a new root for the seeds of all episodes.
            options: passed to the envs' `reset`.
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

    def recv(
        self,
        timeout: float | None = None,
        *,
        within: float | None = None,
        min_slots: int | None = None,
    ) -> Batch:
        """Wait for `batch_size` results and return them, the oldest first.

        Args:
            timeout: seconds until TimeoutError; the results stay pending.
            within: seconds after which the batch is returned with fewer slots.
            min_slots: with `within`, the fewest slots of a batch, however long they
                take (default: 1).
        """
        least, pending = self.batch_size, self.pool.waiting
        if within is not None:
            least = 1 if min_slots is None else min_slots
        elif min_slots is not None:
            raise OptionError(
                f"recv(min_slots={min_slots!r}) needs within=seconds; without it, a "
                f"batch has {self.batch_size} slots (batch_size)"
            )
        if pending < least and not self.pool.closed:
            raise OrderError(
                f"a batch has {least} slots, but only {pending} have a "
                "pending command; call async_reset or send actions first, or receive "
                "the others with pool.recv()"
            )
        # All slots together cost less: the pool returns views.
        whole = self.batch_size == self.num_envs and within is None
        low, high = (None, None) if whole else (least, self.batch_size)
        self._last = step = self.pool.recv(low, high, within=within, timeout=timeout)
        infos = self._infos(step)
        return step.obs, step.reward, step.terminated, step.truncated, infos

    def _infos(self, step: Step) -> dict[str, Any]:
        infos = step.infos.to_vector(len(step)) if step.infos else {}
        if self.pool.autoreset == "same_step":
            for position, final in finals_of(step, self.single_observation_space):
                add_info(infos, final, position, len(step))
        return infos

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches without end; send actions before the next one."""
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
        """Send and recv; the batch may have other slots than those sent to."""
        self.send(actions, slots)
        return self.recv()

    # The last batch -------------------------------------------------------------------

    @property
    def last(self) -> Step:
        """The last batch as the pool's Step, with seeds, returns and final_obs."""
        return self._latest()

    @property
    def slots(self) -> NDArray[np.intp]:
        """The slots of the last batch, ascending."""
        return self.last.slots
