"""An environment by its name, on a command line, in a file or in a program.

    CartPole-v1                registered with Gymnasium
    ale_py:ALE/Pong-v5         registered once its module is imported
    my_package.robots:make_arm a function or class of a module
    mpe2.simple_spread_v3:parallel_env        the same

The module is imported here, with the working directory on the path. The name after the
colon is an attribute of the module, or an id that it registers.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium

from corral.core import Factory
from corral.engine.adapters.gymnasium_registry import (
    check_registered,
    is_registered,
    make_registered,
    near_names,
)
from corral.engine.adapters.wrong_factory import PETTINGZOO_MAKERS
from corral.errors import OptionError


@dataclass(frozen=True, slots=True)
class ResolvedEnv:
    """The environment that a name means."""

    text: str
    factory: Factory
    expression: str
    """How a program names it: `"CartPole-v1"`, or the function's own name."""
    import_line: str = ""
    """The import line of such a program, if it needs one."""

    @property
    def registered(self) -> bool:
        """Whether it is an id of Gymnasium's."""
        return not self.import_line


def resolve_env(
    text: str,
    kwargs: dict[str, Any] | None = None,
    *,
    given: Sequence[str] = (),
    syntax: str = "python",
) -> ResolvedEnv:
    """Find the environment; raise OptionError if there is none of this name.

    Args:
        text: its name.
        kwargs: its arguments.
        given: names of arguments that the pool adds later.
        syntax: how the user writes kwargs: in "python", "yaml" or on a "command" line.
    """
    kwargs = dict(kwargs or {})
    module_name, colon, name = text.partition(":")
    if not colon:
        return _registered(text, kwargs)
    if not module_name or not name:
        raise OptionError(
            f"{text!r} lacks the module or the name; write module:function, or an id "
            "such as CartPole-v1"
        )
    _check_module_name(module_name, name)
    module = _imported(module_name)
    found = _attribute(module, name)
    if found is not None:
        _check_call(found, name, module_name, _FactoryArguments(kwargs, given, syntax))
        factory = functools.partial(found, **kwargs) if kwargs else found
        first = name.partition(".")[0]
        return ResolvedEnv(text, factory, name, f"from {module_name} import {first}")
    if is_registered(name):
        return ResolvedEnv(
            text, functools.partial(make_registered, text, kwargs), f'"{text}"'
        )
    inside = [
        one.rpartition(".")[2] for one in _modules_beside(f"{module_name}.{name}")
    ]
    near = _as_module(f"{module_name}.{name}")
    near = near or near_names(name, [*_callables(module), *inside, *gymnasium.registry])
    raise OptionError(
        f"module {module_name!r} was imported, but it has no function or class "
        f"{name!r} and registers no environment of that name{near}"
    )


def _registered(text: str, kwargs: dict[str, Any]) -> ResolvedEnv:
    try:
        check_registered(text)
    except OptionError as error:
        raise OptionError(
            f"{error}. Looked for it among Gymnasium's {len(gymnasium.registry)} "
            "registered ids; an environment of your own is named module:function, "
            f"one that a package registers module:id{_as_module(text)}"
        ) from None
    return ResolvedEnv(
        text, functools.partial(make_registered, text, kwargs), f'"{text}"'
    )


# Modules ------------------------------------------------------------------------------


def named_attribute(text: str) -> Any:
    """Return what `module:name` names; raise OptionError if it is not there."""
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise OptionError(f"{text!r} is not a whole name: write module:name")
    _check_module_name(module_name, name)
    module = _imported(module_name)
    found = _attribute(module, name)
    if found is None:
        near = near_names(name, _callables(module))
        raise OptionError(f"module {module_name!r} has no {name!r}{near}")
    return found


def _check_module_name(name: str, attribute: str) -> None:
    """Refuse a path in the place of a module, and say how to write it."""
    path = os.path.normpath(name)
    is_file = path.endswith(".py") and os.path.isfile(path)
    if os.sep not in name and not name.startswith(".") and not is_file:
        return
    dotted = path.removesuffix(".py").replace(os.sep, ".")
    hint = "" if dotted.startswith(".") else f": {dotted}:{attribute}"
    raise OptionError(
        f"{name!r} is not a module name; write it as in `import`, with dots, without "
        f".py, relative to the working directory{hint}"
    )


def _imported(name: str) -> Any:
    """The module, with the working directory on the path."""
    here = _look_here()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there; something it imports is not
        near = near_names(name, _modules_beside(name))
        raise OptionError(
            f"no module {error.name!r}: looked in {here} and on Python's path{near}"
        ) from None


def _look_here() -> str:
    try:
        here = os.getcwd()
    except OSError:  # it was deleted, and has no modules
        return "a directory that was deleted"
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    return here


def _as_module(name: str) -> str:
    """What to write instead of a module's name; each PettingZoo env is a module."""
    _look_here()
    with suppress(Exception):  # importing it is a guess, and may raise anything
        if importlib.util.find_spec(name) is not None:
            found = [
                one for one in PETTINGZOO_MAKERS if one in _callables(_imported(name))
            ]
            makers = " or ".join(f"{name}:{one}" for one in found)
            return f". {name} is a module: write {makers or f'{name}:function'}"
    return ""


def _modules_beside(name: str) -> Iterable[str]:
    """Names of modules that could have been meant."""
    parent, dot, _ = name.rpartition(".")
    if not dot:
        return (module.name for module in pkgutil.iter_modules())
    path = getattr(sys.modules.get(parent), "__path__", None)
    if path is None:
        return ()
    return (f"{parent}.{module.name}" for module in pkgutil.iter_modules(path))


def _attribute(module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        try:
            found = getattr(found, part, None)
        except AssertionError:  # PettingZoo's packages raise it for absent names
            return None
        if found is None:
            return None
    return found


def _callables(module: Any) -> list[str]:
    public = [name for name in vars(module) if not name.startswith("_")]
    return [name for name in public if callable(getattr(module, name))]


# Factories ----------------------------------------------------------------------------


class _FactoryArguments(NamedTuple):
    """The arguments of a factory, and how the user writes more of them."""

    kwargs: dict[str, Any]
    later: Sequence[str]
    syntax: str

    def with_more(self, needed: Sequence[str]) -> str:
        """How the user adds these arguments."""
        names = [*self.kwargs, *needed]
        if self.syntax == "command":
            example = json.dumps({**self.kwargs, **dict.fromkeys(needed, "...")})
            return f"Give them as JSON: --kwargs '{example}'"
        if self.syntax == "yaml":
            return f"Give them as env_kwargs: {{{': ..., '.join(names)}: ...}}"
        example = ", ".join(f'"{name}": ...' for name in names)
        return f"Give them as env_kwargs={{{example}}}"


def _check_call(found: Any, name: str, module: str, given: _FactoryArguments) -> None:
    """Refuse what cannot be called with these arguments, and say which are missing."""
    if not callable(found):
        hint = _as_module(found.__name__) if inspect.ismodule(found) else ""
        raise OptionError(
            f"{name} of module {module!r} is {found!r:.80}, not a function or a class "
            f"that makes an environment{hint}"
        )
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        return  # written in C: it checks its arguments itself
    _check_arguments(f"{name} of module {module!r}", parameters, given)


def _check_arguments(
    factory: str, parameters: list[inspect.Parameter], given: _FactoryArguments
) -> None:
    unnamed = _needed(parameters, (inspect.Parameter.POSITIONAL_ONLY,))
    if unnamed:
        raise OptionError(
            f"{factory} takes {', '.join(unnamed)} by position, and Corral passes "
            "arguments by name; wrap it in a function that needs none"
        )
    known = [one.name for one in parameters if one.kind in _BY_NAME]
    open_ended = any(one.kind is one.VAR_KEYWORD for one in parameters)
    strange = [] if open_ended else [key for key in given.kwargs if key not in known]
    if strange:
        raise OptionError(
            f"{factory} has no argument {strange[0]!r}; it has: "
            f"{', '.join(known) or 'none'}"
        )
    supplied = {*given.kwargs, *given.later}
    needed = [one for one in _needed(parameters, _BY_NAME) if one not in supplied]
    if needed:
        raise OptionError(
            f"{factory} needs arguments: {', '.join(needed)}. {given.with_more(needed)}"
        )


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _needed(
    parameters: Iterable[inspect.Parameter], kinds: Sequence[inspect._ParameterKind]
) -> list[str]:
    """Names of the parameters without a default."""
    return [
        one.name for one in parameters if one.default is one.empty and one.kind in kinds
    ]


# Kinds of environments ----------------------------------------------------------------


def is_pettingzoo(env: Any) -> bool:
    """Whether it is one of PettingZoo's; does not import PettingZoo."""
    return any(base.__module__.startswith("pettingzoo.") for base in type(env).__mro__)
