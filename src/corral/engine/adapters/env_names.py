"""An environment by its name, on a command line, in a file or in a program.

    CartPole-v1                registered with Gymnasium
    ale_py:ALE/Pong-v5         registered once its module is imported
    my_package.robots:make_arm a function or class of a module
    mpe2.simple_spread_v3:parallel_env        the same

The module is imported here, with the working directory on the path. The name after the
colon is an attribute of the module, or an id that it registers.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, parse_env_id

from corral.core import Factory
from corral.errors import OptionError

# PettingZoo's names of the functions that make an env: parallel, and in turns.
PETTINGZOO_MAKERS = ("parallel_env", "env")


@dataclass(frozen=True, slots=True)
class ResolvedEnv:
    """The environment that a name means.

    Attributes:
        expression: How a program names it: `"CartPole-v1"`, or the function's own name.
        import_line: The import line of such a program; "" for an id of Gymnasium's.
    """

    text: str
    factory: Factory
    expression: str
    import_line: str = ""


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
    try:
        return _resolved(text, dict(kwargs or {}), given, syntax)
    except OptionError as error:
        written = {"python": f"env={text!r}: ", "yaml": f"`env: {text}`: "}
        raise OptionError(f"{written.get(syntax, '')}{error}") from error


def _resolved(
    text: str, kwargs: dict[str, Any], given: Sequence[str], syntax: str
) -> ResolvedEnv:
    by_id = ResolvedEnv(
        text, functools.partial(make_registered, text, kwargs), f'"{text}"'
    )
    module_name, colon, name = text.partition(":")
    if not colon:
        if is_registered(text):
            return by_id
        raise OptionError(
            f"no environment {text!r} is registered"
            f"{near_names(text, gymnasium.registry)}. Looked for it among Gymnasium's "
            f"{len(gymnasium.registry)} registered ids; write an environment of your "
            "own as module:function, and one that a package registers as module:id"
            f"{_as_module(text)}"
        )
    module = _imported(module_name, name)
    found = _attribute(module, name)
    if found is not None:
        factory_name = f"{name} of module {module_name!r}"
        _check_call(found, factory_name, kwargs, given, syntax)
        factory = functools.partial(found, **kwargs) if kwargs else found
        first = name.partition(".")[0]
        return ResolvedEnv(text, factory, name, f"from {module_name} import {first}")
    if is_registered(name):
        return by_id
    dotted = f"{module_name}.{name}"
    inside = (one.rpartition(".")[2] for one in _modules_beside(dotted))
    names = [*_callables(module), *inside, *gymnasium.registry]
    raise OptionError(
        f"module {module_name!r} was imported, but it has no function or class "
        f"{name!r} and registers no environment of that name"
        f"{_as_module(dotted) or near_names(name, names)}"
    )


# Modules ------------------------------------------------------------------------------


def named_attribute(text: str) -> Any:
    """Return what `module:name` names; raise OptionError if it is not there."""
    module_name, _, name = text.partition(":")
    module = _imported(module_name, name)
    found = _attribute(module, name)
    if found is None:
        near = near_names(name, _callables(module))
        raise OptionError(f"module {module_name!r} has no {name!r}{near}")
    return found


# Libraries of envs with several agents -> how to install them.
INSTALLED_BY = {
    "pettingzoo": "; install it: pip install 'corral[multi]'",
    "mpe2": "; install it: pip install 'corral[multi]' mpe2",
}


def _imported(name: str, attribute: str) -> Any:
    """The module of an attribute, with the working directory on the path."""
    dotted = all(map(str.isidentifier, name.split("."))) and not name.endswith(".py")
    if not (dotted and attribute):
        raise OptionError(
            f"'{name}:{attribute}' is not module:function; write the module as in "
            "`import`, with dots, without .py, relative to the working directory"
        )
    _look_here()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            # The module is there; something it imports is not.
            raise _broken(name, error) from error
        near = near_names(name, _modules_beside(name))
        install = INSTALLED_BY.get(error.name or "", "")
        raise OptionError(
            f"no module {error.name!r} in the working directory or on Python's "
            f"path{near}{install}"
        ) from None
    except Exception as error:  # it is the user's code
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> OptionError:
    """The error for a module that raises when it is imported."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if not one.filename.startswith("<frozen")]
    place = f" ({own[-1].filename}, line {own[-1].lineno})" if own[1:] else ""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        place = ""  # its text names it
    return OptionError(f"module {name!r} raised an error when imported: {text}{place}")


def _look_here() -> None:
    with suppress(OSError):  # it was deleted, and has no modules
        here = os.getcwd()
        if here not in sys.path and "" not in sys.path:
            sys.path.insert(0, here)


def _as_module(name: str) -> str:
    """What to write instead of a module's name; each PettingZoo env is a module."""
    _look_here()
    with suppress(Exception):  # importing it is a guess, and may raise anything
        if importlib.util.find_spec(name) is not None:
            makers = makers_in(importlib.import_module(name)) or ["function"]
            written = " or ".join(f"{name}:{one}" for one in makers)
            return f". {name} is a module: write {written}"
    return ""


def _modules_beside(name: str) -> Iterable[str]:
    """Names of modules that could have been meant."""
    parent, dot, _ = name.rpartition(".")
    path = getattr(sys.modules.get(parent), "__path__", ()) if dot else None
    return (f"{parent}{dot}{module.name}" for module in pkgutil.iter_modules(path))


def _attribute(module: Any, name: str) -> Any:
    try:
        return functools.reduce(getattr, name.split("."), module)
    except (AttributeError, AssertionError):  # the latter from PettingZoo's packages
        return None


def _callables(module: Any) -> list[str]:
    found = vars(module).items()
    return [name for name, value in found if name[:1] != "_" and callable(value)]


def makers_in(module: Any) -> list[str]:
    """PettingZoo's functions that make an env, as far as the module has them."""
    return [one for one in PETTINGZOO_MAKERS if callable(getattr(module, one, None))]


# Factories ----------------------------------------------------------------------------


def _check_call(
    found: Any, factory: str, kwargs: dict[str, Any], given: Sequence[str], syntax: str
) -> None:
    """Refuse what cannot be called with these arguments, and say how to pass others."""
    if not callable(found):
        hint = _as_module(found.__name__) if inspect.ismodule(found) else ""
        raise OptionError(
            f"{factory} is {found!r:.80}, not a function or a class that makes an "
            f"environment{hint}"
        )
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return  # written in C: it checks its arguments itself
    parameters = signature.parameters
    supplied = [*kwargs, *(name for name in given if name in parameters)]
    try:
        signature.bind_partial(**dict.fromkeys(supplied))  # an unknown one first
        signature.bind(**dict.fromkeys(supplied))
    except TypeError as error:
        missing = [
            name
            for name, one in parameters.items()
            if one.default is one.empty and one.kind in _BY_NAME
            if name not in supplied
        ]
        raise OptionError(
            f"{factory} has the arguments {signature} and cannot be called: {error}. "
            f"Arguments are passed by name: {_as_written(kwargs, missing, syntax)}"
        ) from None


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _as_written(kwargs: dict[str, Any], missing: Sequence[str], syntax: str) -> str:
    """How the user passes the arguments of a factory, with those that are missing."""
    if syntax == "command":
        example = json.dumps({**kwargs, **dict.fromkeys(missing, "...")})
        return f"--kwargs '{example}'"
    form = "env_kwargs: {%s}" if syntax == "yaml" else "env_kwargs={%s}"
    quote = "" if syntax == "yaml" else '"'
    names = [f"{quote}{name}{quote}: ..." for name in (*kwargs, *missing)]
    return form % ", ".join(names)


# Kinds of environments ----------------------------------------------------------------


def is_pettingzoo(env: Any) -> bool:
    """Whether it is one of PettingZoo's; does not import PettingZoo."""
    return any(base.__module__.startswith("pettingzoo.") for base in type(env).__mro__)


def make_registered(env: str | EnvSpec, kwargs: dict[str, Any]) -> Any:
    """Build a registered env, in the worker."""
    return gymnasium.make(env, **kwargs)


def make_registered_batch(env: str | EnvSpec, num_envs: int, **kwargs: Any) -> Any:
    """Build a registered env's own vectorised form, in the worker."""
    mode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
    return gymnasium.make_vec(env, num_envs, vectorization_mode=mode, **kwargs)


def is_registered(env_id: str) -> bool:
    """Whether Gymnasium can make it; a name without a version means its latest one."""
    try:
        namespace, name, version = parse_env_id(env_id)
    except gymnasium.error.Error:
        return False
    latest = find_highest_version(namespace, name) if version is None else None
    return latest is not None or env_id in gymnasium.registry


def near_names(name: str, names: Iterable[str]) -> str:
    """The end of an error that lists similar names, if there are any."""
    near = difflib.get_close_matches(name, list(dict.fromkeys(names)), n=3)
    return f"; near names: {', '.join(near)}" if near else ""
