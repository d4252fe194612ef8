"""How an env is told the task of its next episode.

    set_task(task)          a method, called before reset        (Meta-World, garage)
    reset_task(task)        the same                             (rlkit)
    reset(task=task)        a keyword of reset
    options["task"]         in reset's options                   (Gymnasium's own way)

The first of these that an env has is used, wherever in its wrappers it is; `task_by`
names another one, or is a function of (env, task).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from corral.core import NO_TASK
from corral.errors import OptionError

METHODS = ("set_task", "reset_task")
RESET, OPTIONS = "reset", "options"
TaskBy = str | Callable[[Any, Any], object]


class TaskDelivery:
    """Tells one env its tasks.

    Args:
        env: of Gymnasium or PettingZoo.
        task_by: the name of a method, "reset", "options", or a function of the env and
            the task (default: the first way that the env has).
    """

    def __init__(self, env: Any, task_by: TaskBy | None = None) -> None:
        self._env = env
        self.by = _way_of(env) if task_by is None else task_by
        """The way that is used."""
        known = callable(self.by) or self.by in (RESET, OPTIONS)
        if not known and _attribute(env, str(self.by)) is None:
            raise OptionError(
                f"task_by is {self.by!r}, and {env} has no such method; name a method "
                f'of the env, "{RESET}" or "{OPTIONS}", or pass a function of (env, '
                "task)"
            )

    def __call__(self, task: Any, options: dict[str, Any] | None) -> dict[str, Any]:
        """Tell the env a task, if any; return more keywords for its reset."""
        if task is NO_TASK:
            return {} if options is None else {"options": options}
        if self.by == OPTIONS:
            return {"options": {**(options or {}), "task": task}}
        given = {} if options is None else {"options": options}
        if self.by == RESET:
            return {**given, "task": task}
        if callable(self.by):
            self.by(self._env, task)
        else:
            _attribute(self._env, self.by)(task)
        return given


def _attribute(env: Any, name: str) -> Any:
    """A method, wherever in the wrappers it is; None if there is none."""
    if hasattr(env, "has_wrapper_attr"):
        return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    return getattr(env, name, None)


def _way_of(env: Any) -> str:
    for name in METHODS:
        if _attribute(env, name) is not None:
            return name
    layer = env
    while layer is not None:
        if "task" in _keywords(layer.reset):
            return RESET
        layer = getattr(layer, "env", None)
    return OPTIONS


def _keywords(function: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function of C
        return set()
