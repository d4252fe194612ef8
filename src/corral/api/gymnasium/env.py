"""A pool as a `gymnasium.vector.VectorEnv`.

Gymnasium's names: `terminations`, `truncations`, `final_obs`, and infos as a dict of
arrays with masks. `valid` and `started` are attributes, never info keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from corral.api.async_calls import VectorCalls
from corral.api.gymnasium.errors import ActionTypeError
from corral.api.pool_env import finals_of, overlaid, owned
from corral.core import Step
from corral.engine.layout.infos import NO_INFOS, add_info
from corral.engine.pool import Pool
from corral.errors import CorralError, OptionError, OrderError, SpaceMismatch

# Observations, rewards, terminations, truncations, infos.
Results = tuple[
    Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
]

Self = TypeVar("Self", bound="CorralVectorEnv")


class CorralVectorEnv(VectorCalls, VectorEnv[Any, Any, Any]):
    """Gymnasium's vector API over a pool; made by `corral.make`."""

    def __init__(
        self,
        pool: Pool,
        batched: Space[Any],
        autoreset_mode: AutoresetMode,
        copy: bool = True,
        seed: int | None = None,
    ) -> None:
        self.pool = pool
        self.layout = pool.layout
        self.num_envs = pool.num_envs
        self.copy = copy
        self.autoreset_mode = autoreset_mode
        self.metadata = {**pool.spec.metadata, "autoreset_mode": autoreset_mode}
        self.render_mode = pool.spec.render_mode
        self.single_observation_space = pool.spec.observation_space
        self.single_action_space = pool.spec.action_space
        self.observation_space = batched
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._same_step = autoreset_mode == AutoresetMode.SAME_STEP
        # For the first reset, if the caller gives it none.
        self._seed = seed

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Reset ----------------------------------------------------------------------------

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all slots, or those of `options["reset_mask"]`."""
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Send the resets; `reset_wait` takes the results."""
        seed = self._seed if seed is None else seed
        seeds = self._seeds(seed)
        self._begin("reset_async")
        slots = None
        if options is not None and "reset_mask" in options:
            options = dict(options)  # leave the caller's dict unchanged
            slots = np.flatnonzero(self._checked_mask(options.pop("reset_mask")))
            seeds = None if seeds is None else [seeds[slot] for slot in slots]
        with self._translated():
            self.pool.send_reset(
                slots,
                seed=int(seed) if isinstance(seed, (int, np.integer)) else None,
                seeds=seeds,
                options=options,
            )
        self._seed = None
        self._pending = "reset"

    def _checked_mask(self, mask: Any) -> NDArray[np.bool_]:
        name = "`options['reset_mask']` must"
        if not isinstance(mask, np.ndarray):
            raise TypeError(f"{name} be a numpy array, got {type(mask)}")
        if mask.shape != (self.num_envs,):
            raise OptionError(
                f"{name} have shape `({self.num_envs},)`, got {mask.shape}"
            )
        if mask.dtype != np.bool_:
            raise TypeError(f"{name} have `dtype=np.bool_`, got {mask.dtype}")
        if not mask.any():
            raise OptionError(
                f"{name} contain a boolean array with at least one True value, "
                f"got reset_mask={mask}"
            )
        return mask

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Wait for the resets that were sent."""
        before = self._last
        self._last = step = self._received("reset", timeout)
        if len(step) == self.num_envs:
            obs = owned(step.obs) if self.copy else step.obs
            return obs, step.infos.to_vector(self.num_envs)
        self._last = step = overlaid(self.pool, before, step)
        return step.obs, step.infos.to_vector(self.num_envs)

    # Step -----------------------------------------------------------------------------

    def step(self, actions: Any) -> Results:
        """Step every slot."""
        if self._pending is not None or self.closed:
            self._begin("step_async")
        try:
            step = self.pool.step_all(actions, copy=False)
        except (SpaceMismatch, OrderError) as error:
            if error.fault is not None:  # raised by an env
                self._raise(error)
            # Nothing was sent: there may be results of a wait that timed out, or
            # actions that a drop-in passes on unchecked.
            self.step_async(actions)
            return self.step_wait()
        except CorralError as error:
            self._raise(error)
        self._last = step
        return self._vector_results(step)

    def step_async(self, actions: Any) -> None:
        """Send the actions; `step_wait` takes the results."""
        if self._pending is not None or self.closed or self.pool.waiting:
            self._begin("step_async")
        try:
            self.pool.send(actions)
        except SpaceMismatch as error:
            if not self._sent_raw(actions):
                self._raise(self._refusal(error, actions))
        except CorralError as error:
            self._raise(error)
        self._pending = "step"

    def _sent_raw(self, actions: Any) -> bool:
        """Whether actions that do not fit the space were sent all the same."""
        return False

    def step_wait(self, timeout: float | None = None) -> Results:
        """Wait for the steps that were sent."""
        self._last = step = self._received("step", timeout)
        return self._vector_results(step)

    def _vector_results(self, step: Step) -> Results:
        """The five values that Gymnasium returns, in the caller's own memory."""
        infos = {} if step.infos is NO_INFOS else step.infos.to_vector(self.num_envs)
        if self._same_step:
            for slot, final in finals_of(step, self.single_observation_space):
                add_info(infos, final, slot, self.num_envs)
        obs = step.obs
        if self.copy:
            obs = obs.copy() if type(obs) is np.ndarray else owned(obs)
        return (
            obs,
            step.reward.copy(),
            step.terminated.copy(),
            step.truncated.copy(),
            infos,
        )

    @property
    def np_random_seed(self) -> Any:
        """The seed of every env."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """The generator of every env."""
        return self.get_attr("np_random")

    def _refusal(self, error: SpaceMismatch, actions: Any) -> SpaceMismatch:
        """Also a TypeError, if Gymnasium could not have iterated the actions."""
        if isinstance(actions, (dict, tuple, list)) or np.ndim(actions) > 0:
            return error
        return ActionTypeError(
            f"actions is {actions!r}; pass one action for each of the {self.num_envs} "
            "slots"
        )
