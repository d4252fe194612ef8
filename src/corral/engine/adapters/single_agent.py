"""A gymnasium.Env as an Adapter."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from typing import Any

import gymnasium

from corral.core import NO_TASK, Adapter, EnvSpec
from corral.engine.adapters.task_delivery import TaskDelivery


class GymnasiumAdapter(Adapter):
    """One gymnasium.Env; attributes are reached through its wrappers."""

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
        self._resets = Signature()
        self._deliver: TaskDelivery | None = None

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the env."""
        return self.env.step(action)

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode, about `task` where one was given."""
        env = self.env
        if task is not NO_TASK:
            if self._deliver is None:
                self._deliver = TaskDelivery(env)
            more = self._deliver(task, options)
            if more:
                return env.reset(seed=seed, **more)
        if options is None:
            # An env may take no options, as long as none are given.
            if seed is None:
                return env.reset()
            if not self._resets.takes_options(env.reset):
                return env.reset(seed=seed)
        return env.reset(seed=seed, options=options)

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


class Signature:
    """Whether a `reset` takes options; inspected again when the method changes."""

    def __init__(self) -> None:
        self._function: Any = None
        self._answer = True

    def takes_options(self, reset: Callable[..., Any]) -> bool:
        """Whether options can be given to it."""
        function = getattr(reset, "__func__", reset)  # a bound method is new each time
        if function is not self._function:
            self._function, self._answer = function, takes_options(reset)
        return self._answer


def takes_options(reset: Callable[..., Any]) -> bool:
    """Whether options can be given to it."""
    try:
        parameters = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):  # a function of C
        return True
    return any(
        one.name == "options" or one.kind == one.VAR_KEYWORD for one in parameters
    )
