"""A gymnasium.Env as an Adapter."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import gymnasium

from corral.core import NO_TASK, Adapter, EnvSpec
from corral.engine.adapters.task_delivery import TaskBy, TaskDelivery, takes_keyword


class SingleEnvAdapter(Adapter):
    """The adapter of one env, of any kind: how its episodes begin.

    Attributes:
        task_by: How the env is told its tasks; None for the first way that it has.
        bare_resets: Whether `reset` is called without arguments where none are given.
    """

    # The env's `reset`, and whether it takes options.
    _resets: tuple[Any, bool] = (None, True)
    task_by: TaskBy | None = None
    _deliver: TaskDelivery | None = None
    bare_resets = False

    def begin(
        self, reset: Callable[..., Any], seed: int | None, options: Any, task: Any
    ) -> Any:
        """Reset the env, about `task` where one was given.

        Args:
            reset: the method to call: the env's, or a shortcut to it.
            seed: for this episode.
            options: for this episode.
            task: for this episode.
        """
        if task is not NO_TASK:
            if self._deliver is None:
                self._deliver = TaskDelivery(self.env, self.task_by)
            given = self._deliver(task, options)
            options = given.get("options")
            if given.keys() - {"options"}:
                return reset(seed=seed, **given)
        if options is not None:
            return reset(seed=seed, options=options)
        if seed is None and self.bare_resets:
            return reset()
        # An env may take no options, as long as none are given.
        return (
            reset(seed=seed, options=None)
            if self._takes_options()
            else reset(seed=seed)
        )

    def _takes_options(self) -> bool:
        # A bound method is new each time. A signature is read when the method changes.
        function = getattr(self.env.reset, "__func__", self.env.reset)
        if function is not self._resets[0]:
            self._resets = function, takes_keyword(function, "options")
        return self._resets[1]


class GymnasiumAdapter(SingleEnvAdapter):
    """One gymnasium.Env; attributes are reached through its wrappers."""

    bare_resets = True

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self.stepper = env
        self.spec = EnvSpec(
            observation_space=env.observation_space,
            action_space=env.action_space,
            metadata=dict(env.metadata or {}),
            render_mode=env.render_mode,
            id=env.spec.id if env.spec is not None else None,
        )

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        return self.env.step(action)

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode, about `task` where one was given."""
        return self.begin(self.env.reset, seed, options, task)  # type: ignore[no-any-return]

    def get_attr(self, name: str) -> Any:
        """Read the attribute, wherever in the wrappers it is."""
        return self.env.get_wrapper_attr(name)

    def set_attr(self, name: str, value: Any) -> None:
        """Set the attribute on the layer that has it, else on the env itself."""
        if not self.env.set_wrapper_attr(name, value, force=False):
            setattr(self.env.unwrapped, name, value)

    def exchanged(self, env: Any) -> GymnasiumAdapter:
        """The same for another env."""
        made = copy(self)
        made.env = made.stepper = env
        made._deliver = None
        return made
