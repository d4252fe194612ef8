"""A pool as a `gymnasium.vector.VectorEnv`.

Gymnasium's words for ours: `terminations`, `truncations`, `final_obs`, and infos as a
dict of arrays with masks. `valid` and `started` are attributes, never info keys.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from corral.api.episode_ends import finals_of
from corral.api.gymnasium.errors import (
    ActionTypeError,
    CallPending,
    EnvsClosed,
    NothingPending,
    raise_env_exception,
    timeout_error,
)
from corral.api.pool_attributes import PoolAttributes
from corral.core import Step
from corral.engine.faults.report import one_error_for
from corral.engine.layout.infos import NO_INFOS, add_info
from corral.engine.pool import Pool, Question
from corral.errors import (
    CorralError,
    EnvError,
    Fault,
    OptionError,
    OrderError,
    SpaceMismatch,
)


class CorralVectorEnv(PoolAttributes, VectorEnv[Any, Any, Any]):
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
        self._seed = seed
        """Of the first reset, where that is given none."""
        self._pending: str | None = None
        self._question: Question | None = None
        self._last: Step | None = None

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
            options = dict(options)  # the caller's own stays as it is
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

    def _seeds(self, seed: Any) -> list[int | None] | None:
        if seed is None:
            return None
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + slot for slot in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise OptionError(
                "If seeds are passed as a list the length must match "
                f"num_envs={self.num_envs} but got length={len(seed)}."
            )
        return list(seed)

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
        step = self._finish("reset", timeout)
        if len(step) == self.num_envs:
            return self._own(step.obs), step.infos.to_vector(self.num_envs)
        self._last = self._overlaid(before, step)
        infos: dict[str, Any] = {}
        for position, slot in enumerate(step.slots.tolist()):
            add_info(infos, step.infos.of(position), slot, self.num_envs)
        return self.pool.observe(), infos

    def _overlaid(self, before: Step | None, step: Step) -> Step:
        """The flags of all slots after a reset of some."""
        flags: dict[str, Any] = {}
        for name in ("valid", "started"):
            nothing = np.zeros(self.num_envs, np.bool_)
            flags[name] = nothing if before is None else getattr(before, name).copy()
            flags[name][step.slots] = getattr(step, name)
        return replace(step, **flags)

    # Step -----------------------------------------------------------------------------

    def step(
        self, actions: Any
    ) -> tuple[
        Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
    ]:
        """Step every slot."""
        if self._pending is not None or self.closed:
            self._begin("step_async")
        try:
            step = self.pool.step_all(actions, copy=False)
        except (SpaceMismatch, OrderError) as error:
            if error.fault is not None:  # an env's own
                self._raise(error)
            # Nothing was sent: there may be results of a wait that timed out, or
            # actions that a drop-in hands on as they are.
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
        """Whether actions that fit no space were handed on all the same."""
        return False

    def step_wait(
        self, timeout: float | None = None
    ) -> tuple[
        Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
    ]:
        """Wait for the steps that were sent."""
        return self._vector_results(self._finish("step", timeout))

    def _vector_results(
        self, step: Step
    ) -> tuple[
        Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
    ]:
        """What Gymnasium's users are told of a step, in memory of their own."""
        infos = {} if step.infos is NO_INFOS else step.infos.to_vector(self.num_envs)
        if self._same_step:
            self._add_finals(step, infos)
        obs = step.obs
        if self.copy:
            obs = obs.copy() if type(obs) is np.ndarray else deepcopy(obs)
        return (
            obs,
            step.reward.copy(),
            step.terminated.copy(),
            step.truncated.copy(),
            infos,
        )

    def _add_finals(self, step: Step, infos: dict[str, Any]) -> None:
        """`final_obs` and `final_info`, where an episode ended."""
        for slot, final in finals_of(step, self.single_observation_space):
            add_info(infos, final, slot, self.num_envs)

    def _own(self, obs: Any) -> Any:
        """The caller's own memory, unless views were asked for."""
        if not self.copy:
            return obs
        return obs.copy() if type(obs) is np.ndarray else deepcopy(obs)

    # Calls ----------------------------------------------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method, or read an attribute, of every env."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Send the calls; `call_wait` takes the results."""
        self._begin("call_async")
        with self._translated():
            payload = (name, args, kwargs)
            self._question = self.pool.ask_async("call", None, lambda _: payload)
        self._pending = "call"

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the calls that were sent."""
        self._expect("call")
        self._pending = None
        assert self._question is not None
        with self._translated(), self._timing("call_wait", timeout):
            return self.pool.answers(self._question, timeout)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every env; a method is called, as Gymnasium does."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every env; a list or tuple has one value for each."""
        self._begin("set_attr")
        with self._translated():
            self.pool.set_attr(name, values)

    def render(self) -> tuple[Any, ...] | None:
        """Render every env."""
        return self.call("render")

    @property
    def np_random_seed(self) -> Any:
        """The seed of every env."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """The generator of every env."""
        return self.get_attr("np_random")

    # States ---------------------------------------------------------------------------

    def _begin(self, method: str) -> None:
        """Nothing else may be under way."""
        self._check_open()
        if self._pending is not None:
            raise CallPending(
                f"Calling `{method}` while waiting for a pending call to "
                f"`{self._pending}` to complete.",
                self._pending,
            )
        if self.pool.waiting:
            # A wait that timed out left results behind; they belong to nobody.
            with self._translated():
                self.pool.recv(copy=False)

    def _check_open(self) -> None:
        if self.closed:
            raise EnvsClosed(
                f"Trying to operate on `{type(self).__name__}`, "
                "after a call to `close()`."
            )

    def _expect(self, what: str) -> None:
        self._check_open()
        if self._pending != what:
            raise NothingPending(
                f"Calling `{what}_wait` without any prior call to `{what}_async`.", what
            )

    def _finish(self, what: str, timeout: float | None) -> Step:
        if self._pending != what or self.closed:
            self._expect(what)
        self._pending = None
        try:
            step = self.pool.recv(timeout=timeout, copy=False)
        except TimeoutError as error:
            if isinstance(error, CorralError):
                raise
            raise timeout_error(f"{what}_wait", timeout) from None
        except CorralError as error:
            self._raise(error)
        self._last = step
        return step

    @contextmanager
    def _timing(self, method: str, timeout: float | None) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            if isinstance(error, CorralError):
                raise
            raise timeout_error(method, timeout) from None

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except CorralError as error:
            self._raise(error)

    def _refusal(self, error: SpaceMismatch, actions: Any) -> SpaceMismatch:
        """A TypeError as well where Gymnasium could not have iterated the actions."""
        if np.ndim(_plain(actions)) > 0:
            return error
        return ActionTypeError(
            f"actions is {actions!r}; give one for each of the {self.num_envs} slots"
        )

    def _raise(self, error: CorralError) -> NoReturn:
        """Raise what Gymnasium's users would get."""
        faults = error.faults
        if faults:
            self._announce(faults)
        if len(faults) > 1 and isinstance(error, EnvError):
            step = error.step
            error = one_error_for(faults, -1)  # Gymnasium raises the last of them
            error.step = step
        raise_env_exception(error)

    def _announce(self, faults: Sequence[Fault]) -> None:
        """Log the faults, where the class it stands in for does."""

    # Ending ---------------------------------------------------------------------------

    def close_extras(
        self, timeout: float | None = None, terminate: bool = False, **_: Any
    ) -> None:
        """End the workers, after what is under way unless `terminate`."""
        pending, failed = self._pending, False
        if pending is not None:
            # Gymnasium would wait for ever; here an env that hangs is ended.
            limit = self.pool.close_timeout if timeout is None else timeout
            try:
                getattr(self, f"{pending}_wait")(0 if terminate else limit)
            except multiprocessing.TimeoutError:
                terminate = True
            except Exception:
                failed = True
        self.pool.close(0.0 if terminate else timeout)
        # Last of all: a warning may be an error, and must not leave workers behind.
        if pending is not None:
            gymnasium.logger.warn(
                f"Calling `close` while waiting for a pending call to `{pending}` to "
                f"complete{', which failed' if failed else ''}."
            )

    def __del__(self) -> None:
        if not getattr(self, "closed", True) and hasattr(self, "pool"):
            self.pool.close()


def _plain(actions: Any) -> Any:
    """Something numpy can tell the dimensions of."""
    return [None] if isinstance(actions, (dict, tuple, list)) else actions
