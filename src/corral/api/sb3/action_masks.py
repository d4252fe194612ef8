"""Action masks without a second round trip.

sb3-contrib calls `env_method("action_masks")` before every action. The first call goes
to the envs like any other; from then on the masks come with the steps, in an info entry
that is removed before users see it::

    worker   MaskCarrier   step, reset -> info + masks
    caller   LastMasks     infos -> masks, until another call to the envs

Envs whose masks are never read have no extra cost. Workers import this file, so it
imports neither Stable-Baselines3 nor torch.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, TypeVar

import gymnasium
import numpy as np

from corral.errors import OptionError

if TYPE_CHECKING:
    from corral.engine.pool import Pool

Function = TypeVar("Function", bound=Callable[..., Any])

METHOD = "action_masks"
# The info key of the masks; without underscore, so that it gets a column.
KEY = "corral.action_masks"


class MaskCarrier(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper of an env with action masks; hidden from users."""

    carrying = False

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """The spec of the env without this wrapper."""
        return self.env.spec

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Reset, with the masks of the new episode in the info."""
        outcome = self.env.reset(**arguments)
        if not self.carrying:
            return outcome
        obs, info = outcome
        return obs, self._with_masks(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step, with the masks in the info; after an end the reset adds them."""
        outcome = self.env.step(action)
        if not self.carrying:
            return outcome
        obs, reward, terminated, truncated, info = outcome
        if terminated or truncated:
            return outcome
        return obs, reward, terminated, truncated, self._with_masks(info)

    def _with_masks(self, info: Any) -> Any:
        try:
            masks = self.env.get_wrapper_attr(METHOD)()
        except Exception:  # the caller gets it from env_method("action_masks")
            return info
        if not isinstance(masks, np.ndarray):  # arrays are copied into their column
            masks = deepcopy(masks)
        # Not added to the env's own dict, which it may return again.
        return {**info, KEY: masks} if isinstance(info, dict) else info


def carrying(env: Any) -> Any:
    """Wrap an env that has action masks."""
    if isinstance(env, gymnasium.Env) and env.has_wrapper_attr(METHOD):
        return MaskCarrier(env)
    return env


def only_reads(function: Function) -> Function:
    """Mark what leaves envs as they are: a replay need not repeat it (`Pool.apply`)."""
    vars(function)["only_reads"] = True
    return function


def inner(env: Any) -> Any:
    """The env without the MaskCarrier."""
    return env.env if isinstance(env, MaskCarrier) else env


def outside(before: Any, env: Any) -> Any:
    """A replacement for an env, in the same MaskCarrier if there is one."""
    if not isinstance(before, MaskCarrier):
        return env
    before.env = env
    return before


@only_reads
def masks_of(env: Any, carry: bool) -> Any:
    """Return the masks; with `carry` they come with every step from now on."""
    if isinstance(env, MaskCarrier):
        env.carrying = carry
    return inner(env).get_wrapper_attr(METHOD)()


class LastMasks:
    """The masks of the last step, until the next call to the envs.

    A call may change an env and its masks, so the masks are valid only while the pool's
    count of calls stays the same.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # In this process the caller can change an env without a call to the pool.
        self._carried = pool.layout.backend != "serial"
        # Whether infos contain masks.
        self.expected = False
        self._masks: list[Any] | None = None
        self._asked = 0

    def take(self, infos: list[dict[str, Any]]) -> None:
        """Remove the masks from the infos of a step or reset, and keep them."""
        masks = [info.pop(KEY, None) for info in infos]
        self._masks = None if any(one is None for one in masks) else masks
        self._asked = self._pool.question_count

    @property
    def are_current(self) -> bool:
        """Whether the masks are known without a call to the envs."""
        return self._masks is not None and self._asked == self._pool.question_count

    def ask(self) -> list[Any]:
        """The masks of all slots, from the last step if possible."""
        if self._masks is not None and self.are_current:
            return [copy(masks) for masks in self._masks]
        self.expected = self._carried  # even if an env fails: the others carry theirs
        return list(self._pool.apply(masks_of, self._carried))


class StepMasks:
    """Masks that come with observations: no env is asked for them.

    Args:
        read: the masks of all rows in the last step; None without one.
    """

    expected = False

    def __init__(self, read: Callable[[], Any]) -> None:
        self._read = read

    def take(self, infos: list[dict[str, Any]]) -> None:
        """Infos have none."""

    @property
    def are_current(self) -> bool:
        """Whether there are any."""
        return self._read() is not None

    def ask(self) -> list[Any]:
        """The masks of all rows."""
        masks = self._read()
        if masks is None:
            raise OptionError(
                "there are no action masks: call reset first; actions must be Discrete"
            )
        return list(masks.astype(bool))
