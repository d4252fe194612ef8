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
_KEYWORDS = {RESET: "task", OPTIONS: "options"}
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
        # The way that is used.
        self.by = way_for(env, task_by)
        self._checked = False

    def __call__(self, task: Any, options: dict[str, Any] | None) -> dict[str, Any]:
        """Tell the env a task, if any; return more keywords for its reset."""
        if task is NO_TASK:
            return {} if options is None else {"options": options}
        if self.by in _KEYWORDS and not self._checked:
            self._check(_KEYWORDS[str(self.by)])
        if self.by == OPTIONS:
            return {"options": {**(options or {}), "task": task}}
        given = {} if options is None else {"options": options}
        if self.by == RESET:
            return {**given, "task": task}
        if callable(self.by):
            self.by(self._env, task)
        else:
            method_of(self._env, self.by)(task)
        return given

    def _check(self, keyword: str) -> None:
        """Refuse an env, or a wrapper, whose reset does not take the keyword."""
        if not takes_keyword(self._env.reset, keyword):
            raise OptionError(
                f"{self._env} cannot be told its task: reset of "
                f"{type(self._env).__name__} takes no {keyword}. Give the env a method "
                "set_task(task), or say how with task_by=function of (env, task)"
            )
        self._checked = True


def way_for(env: Any, task_by: TaskBy | None = None) -> TaskBy:
    """The way that an env is told its tasks, if it has this one."""
    if task_by is None:
        return _way_of(env)
    check_task_by(task_by)
    known = callable(task_by) or task_by in (RESET, OPTIONS)
    if not known and method_of(env, str(task_by)) is None:
        raise OptionError(
            f"task_by is {task_by!r}, and {env} has no such method; {_CHOICES}"
        )
    return task_by


def check_task_by(task_by: Any) -> None:
    """Refuse what is no way at all, before any env is built."""
    named = isinstance(task_by, str) and task_by.isidentifier()
    if task_by is not None and not named and not callable(task_by):
        raise OptionError(f"task_by is {task_by!r}; {_CHOICES}")


_CHOICES = (
    f'name a method of the env, "{RESET}" or "{OPTIONS}", or pass a function of (env, '
    "task)"
)


def method_of(env: Any, name: str) -> Any:
    """A method, wherever in the wrappers it is; None if there is none."""
    if hasattr(env, "has_wrapper_attr"):
        return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None
    return getattr(env, name, None)


def _way_of(env: Any) -> str:
    for name in METHODS:
        if method_of(env, name) is not None:
            return name
    layer = env
    while layer is not None:
        if takes_keyword(layer.reset, "task", by_name=True):
            return RESET
        layer = getattr(layer, "env", None)
    return OPTIONS


def takes_keyword(
    function: Callable[..., Any], name: str, by_name: bool = False
) -> bool:
    """Whether it can be given this keyword; `by_name`: not as one of `**kwargs`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C
        return not by_name
    return any(
        one.name == name or (one.kind is one.VAR_KEYWORD and not by_name)
        for one in parameters
    )
