"""Action masks without a second round trip.

sb3-contrib asks `env_method("action_masks")` before every action. The first answer is a
question like any other; from then on the masks come with the steps, as an info entry
that users never see::

    worker   MaskCarrier   step, reset -> info + masks
    caller   LastMasks     infos -> masks, as long as nothing else was asked

An env whose masks nobody asks for pays nothing. Workers import this file, so it imports
neither Stable-Baselines3 nor torch.
"""

from __future__ import annotations

from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

if TYPE_CHECKING:
    from corral.engine.pool import Pool

METHOD = "action_masks"
KEY = "corral.action_masks"
"""Where the masks are in an info on its way; no underscore, so that it has a column."""


class MaskCarrier(gymnasium.Wrapper[Any, Any, Any, Any]):
    """The outermost wrapper of an env with action masks; nobody is shown it."""

    carrying = False

    @property
    def spec(self) -> Any:  # type: ignore[override]
        """The env's own: this wrapper is no part of how it was made."""
        return self.env.spec

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """The masks of a new episode are in the info of its reset."""
        outcome = self.env.reset(**arguments)
        if not self.carrying:
            return outcome
        obs, info = outcome
        return obs, self._with_masks(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The last info of an episode has none: a reset follows, with the new ones."""
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
        except Exception:  # whoever wants the masks asks for them, and is told
            return info
        if not isinstance(masks, np.ndarray):  # arrays are copied into their column
            masks = deepcopy(masks)
        # Not added to the env's own dict, which it may return again.
        return {**info, KEY: masks} if isinstance(info, dict) else info


def carrying(env: Any) -> Any:
    """The env in a carrier, if it has masks to carry."""
    if isinstance(env, gymnasium.Env) and env.has_wrapper_attr(METHOD):
        return MaskCarrier(env)
    return env


def inner(env: Any) -> Any:
    """The env as its owner made it."""
    return env.env if isinstance(env, MaskCarrier) else env


def outside(before: Any, env: Any) -> Any:
    """Another env for the place of one: in its carrier, where that has one."""
    if not isinstance(before, MaskCarrier):
        return env
    before.env = env
    return before


def masks_of(env: Any, carry: bool) -> Any:
    """The masks now; with `carry` they come with every step from now on."""
    if isinstance(env, MaskCarrier):
        env.carrying = carry
    return inner(env).get_wrapper_attr(METHOD)()


class LastMasks:
    """What the last step said about masks, as long as nothing else was asked since.

    A question may change an env, and its masks with it, so any question ends what is
    known; the pool counts them.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        # In this process an env can be reached, and changed, without a question.
        self._carried = pool.layout.backend != "serial"
        self.expected = False
        """Whether infos have to be looked through for masks."""
        self._masks: list[Any] | None = None
        self._asked = 0

    def take(self, infos: list[dict[str, Any]]) -> None:
        """Take the masks out of the infos of a step or reset."""
        masks = [info.pop(KEY, None) for info in infos]
        self._masks = None if any(one is None for one in masks) else masks
        self._asked = self._pool.question_count

    @property
    def are_current(self) -> bool:
        """Whether the next answer needs no question."""
        return self._masks is not None and self._asked == self._pool.question_count

    def ask(self) -> list[Any]:
        """The masks of all slots, from the last step if it can answer."""
        if self._masks is not None and self.are_current:
            return [copy(masks) for masks in self._masks]
        self.expected = self._carried  # even if one fails: the others carry theirs
        return list(self._pool.apply(masks_of, self._carried))
