"""A pool as a Stable-Baselines3 `VecEnv`.

Stable-Baselines3's names: `dones`, `terminal_observation`, `TimeLimit.truncated`, and
infos as a list of dicts. Episodes restart in the step that ends them; the infos of
resets are in `reset_infos`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.gymnasium.errors import raise_for, translated
from corral.api.pool_env import PoolAttributes, at_position, owned
from corral.api.sb3 import env_calls as reach
from corral.api.sb3.action_masks import METHOD, LastMasks, StepMasks, inner, outside
from corral.core import Step
from corral.engine.executors.contract import closed_on_error
from corral.engine.executors.serial import EnvList
from corral.engine.layout.infos import NO_INFOS
from corral.engine.pool import Pool
from corral.engine.tree import mapped
from corral.errors import ClosedError, CorralError, OrderError, SpaceMismatch, requires

with requires("this needs Stable-Baselines3 ({error}): pip install 'corral[sb3]'"):
    from stable_baselines3.common.vec_env import VecEnv

Indices = int | Iterable[int] | None


class CorralVecEnv(PoolAttributes, VecEnv):  # type: ignore[misc]
    """Stable-Baselines3's vector API over a pool; made by `corral.make_sb3`."""

    # How its users write options; see `advice_for`.
    _syntax = "python"

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.layout = pool.layout
        # Whether a step was sent whose results were not received yet.
        self.waiting = False
        self._masks: LastMasks | StepMasks = LastMasks(pool)
        self._here = pool.layout.backend != "process"
        spec = pool.spec
        with closed_on_error(pool):
            super().__init__(pool.num_envs, spec.observation_space, spec.action_space)
        # As in DummyVecEnv: recorders read the frame rate there.
        self.metadata = spec.metadata

    # Reset ----------------------------------------------------------------------------

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seed the next reset: slot i gets `seed + i`, or the i-th group of slots."""
        each: list[int] = list(super().seed(seed))
        self._seeds = [each[slot // self.pool.repeat] for slot in range(self.num_envs)]
        return list(self._seeds)

    def reset(self) -> Any:
        """Reset every slot, with the seeds and options that were set before."""
        return self.begin_at(None)

    def begin_at(self, root: int | None) -> Any:
        """Reset with a new root, if any, for the seeds that the pool makes."""
        self._finish_pending()
        options = [one or None for one in self._options]
        with translated(self._syntax):
            self.pool.send_reset(
                seed=root, seeds=self._seeds, options=options if any(options) else None
            )
            step = self.pool.recv(copy=False)
        self._reset_seeds()
        self._reset_options()
        self._last = step
        self.reset_infos = self._infos_of(step)
        return owned(step.obs)

    def begin_again(
        self, rows: NDArray[np.intp], seeds: Sequence[int]
    ) -> tuple[NDArray[np.intp], Any]:
        """Reset some rows between two steps, and return them with what they see."""
        with translated(self._syntax):
            step = self.pool.reset(rows, seeds=seeds)
        last = self._last
        assert last is not None, "a step came before"

        def renewed(whole: Any, new: Any) -> Any:
            whole = whole.copy()  # the pool's own
            whole[rows] = new
            return whole

        self._last = replace(last, obs=mapped(renewed, last.obs, step.obs))
        return rows, step.obs

    # Step -----------------------------------------------------------------------------

    def step_async(self, actions: Any) -> None:
        """Send the actions; `step_wait` takes the results."""
        if self.waiting:
            raise OrderError("step_async while a step is pending; call step_wait first")
        if self.pool.waiting:
            self._finish_pending()
        try:
            self.pool.send(actions)
        except SpaceMismatch:
            if not self._sent_raw(actions):
                raise
        except CorralError as error:
            raise_for(error, self._syntax)
        self.waiting = True

    def _sent_raw(self, actions: Any) -> bool:
        """Whether actions that do not fit the space were sent all the same."""
        return False

    def step_wait(
        self,
    ) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Wait for the steps that were sent."""
        if not self.waiting and self.closed:
            raise ClosedError("these envs are closed; make new ones")
        if not self.waiting:
            raise OrderError("step_wait without step_async: no step was sent")
        self.waiting = False
        try:
            step = self.pool.recv(copy=False)
        except CorralError as error:
            raise_for(error, self._syntax)
        self._last = step
        dones = step.terminated | step.truncated
        ended = dones.tolist()
        if step.infos is not NO_INFOS or True in ended or self._masks.expected:
            infos = self._step_infos(step, ended)
        else:
            infos = [{"TimeLimit.truncated": False} for _ in ended]
        return owned(step.obs), step.reward.astype(np.float32), dones, infos

    def _step_infos(self, step: Step, ended: list[bool]) -> list[dict[str, Any]]:
        """The infos of a step; of its last step where an episode ended."""
        infos: list[dict[str, Any]] = self._infos_of(step)
        for slot in compress(range(self.num_envs), ended):
            self.reset_infos[slot] = infos[slot]
            infos[slot] = step.final_infos.get(slot, {})
            last = at_position(self.observation_space, step.final_obs, slot)
            infos[slot]["terminal_observation"] = last
        late = step.truncated & ~step.terminated
        for info, truncated in zip(infos, late.tolist(), strict=True):
            info["TimeLimit.truncated"] = truncated
        return infos

    def _infos_of(self, step: Step) -> list[dict[str, Any]]:
        infos = step.infos.to_list(self.num_envs)
        if self._masks.expected:
            self._masks.take(infos)
        return infos

    def _finish_pending(self) -> None:
        """Drop the results of a step that the caller did not wait for."""
        self.waiting = False
        if self.pool.waiting:
            with translated(self._syntax):
                self.pool.recv(copy=False)

    # Questions ------------------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Read an attribute through the wrappers."""
        return self._ask(indices, reach.get_attr, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of the outermost wrapper, the same value everywhere."""
        self._ask(indices, reach.set_attr, attr_name, value)

    def has_attr(self, attr_name: str) -> bool:
        """Whether all envs have the attribute."""
        if attr_name == METHOD and self._masks.are_current:
            return True
        return all(self._ask(None, reach.has_attr, attr_name))

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: Indices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method, wherever in the wrappers it is."""
        plain = not method_args and not method_kwargs
        known = indices is None or self._masks.are_current
        if plain and known and method_name == METHOD:
            with translated(self._syntax):
                masks = self._masks.ask()
            return [masks[slot] for slot in self._slots(indices)]
        return self._ask(indices, reach.call, method_name, method_args, method_kwargs)

    def env_is_wrapped(
        self, wrapper_class: type, indices: Indices = None
    ) -> list[bool]:
        """Whether each env has such a wrapper."""
        wanted = wrapper_class if self._here else reach.known_as(wrapper_class)
        return self._ask(indices, reach.is_wrapped, wanted)

    def get_images(self) -> Sequence[Any]:
        """What each env renders; Nones, and a warning, unless it is "rgb_array"."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"The render mode is {self.render_mode}, but this method assumes it is "
                "`rgb_array` to obtain images.",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return self._ask(None, reach.call, "render", (), {})

    def _ask(
        self, indices: Indices, function: Callable[..., Any], *args: Any
    ) -> list[Any]:
        slots = self._slots(indices)
        apply = self.pool.apply
        with translated(self._syntax):
            if len(set(slots)) == len(slots):
                return list(apply(function, *args, slots=slots)) if slots else []
            return [apply(function, *args, slots=[slot])[0] for slot in slots]

    def _slots(self, indices: Indices) -> list[int]:
        """The slots of list indices: -1 is the last slot; duplicates are allowed."""
        chosen = list(self._get_indices(indices))
        try:
            return [range(self.num_envs)[index] for index in chosen]
        except IndexError:
            raise IndexError(
                f"indices is {chosen}; there are slots 0 to {self.num_envs - 1}"
            ) from None

    # Ours -----------------------------------------------------------------------------

    @property
    def last_step(self) -> Step | None:
        """The last Step of the pool, as views that the next step overwrites."""
        return self._last

    @property
    def envs(self) -> list[Any]:
        """The environments, if they are in this process (serial).

        `envs.envs[0] = Wrapper(...)` replaces one.
        """
        try:
            theirs = self.pool.envs
        except CorralError as error:  # wrappers use hasattr
            raise AttributeError(str(error)) from None

        def exchange(slot: int, env: Any) -> None:
            theirs[slot] = outside(theirs[slot], env)

        return EnvList(map(inner, theirs), exchange)

    @envs.setter
    def envs(self, envs: Iterable[Any]) -> None:
        self.envs[:] = envs

    # Ending ---------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self.pool.closed

    def close(self) -> None:
        """Close every env and end every worker; bounded, idempotent, never raises."""
        self.waiting = False
        self.pool.close()
