"""A gymnasium.Env as an Adapter."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from corral.core import NO_TASK, EnvSpec


class GymnasiumAdapter:
    """One gymnasium.Env; attributes are reached through its wrappers."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self.step: Callable[[Any], tuple[Any, Any, Any, Any, dict[str, Any]]] = env.step
        self.spec = EnvSpec(
            observation_space=env.observation_space,
            action_space=env.action_space,
            metadata=dict(env.metadata or {}),
            render_mode=env.render_mode,
            id=env.spec.id if env.spec is not None else None,
        )
        # Meta-RL envs (Meta-World, garage, learn2learn) take their task by a method of
        # their own; others read it from the reset options.
        self._set_task = (
            env.get_wrapper_attr("set_task")
            if env.has_wrapper_attr("set_task")
            else None
        )

        self._takes_options = takes_options(env.reset)

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode, about `task` where one was given."""
        if task is not NO_TASK:
            if self._set_task is not None:
                self._set_task(task)
            else:
                options = {**(options or {}), "task": task}
        # An env may take no options, as long as none are given.
        if options is None and not (self._takes_options and seed is not None):
            return self.env.reset() if seed is None else self.env.reset(seed=seed)
        return self.env.reset(seed=seed, options=options)

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call the method, or read the attribute, wherever in the wrappers it is."""
        found = self.env.get_wrapper_attr(name)
        return found(*args, **kwargs) if callable(found) else found

    def get_attr(self, name: str) -> Any:
        """Read the attribute, wherever in the wrappers it is."""
        return self.env.get_wrapper_attr(name)

    def set_attr(self, name: str, value: Any) -> None:
        """Set the attribute on the layer that has it, else on the env itself."""
        if not self.env.set_wrapper_attr(name, value, force=False):
            setattr(self.env.unwrapped, name, value)

    def close(self) -> None:
        """Close the env."""
        self.env.close()


def takes_options(reset: Callable[..., Any]) -> bool:
    """Whether options can be given to it."""
    try:
        parameters = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):  # a function of C
        return True
    return any(
        one.name == "options" or one.kind == one.VAR_KEYWORD for one in parameters
    )
