"""Checks of keywords: names that a function does not have, and values out of range.

    @checked_keywords()                    its own keywords
    @checked_keywords(onward=Pool)         and those that its `**options` hand on

An unknown keyword is refused with the one that was probably meant. The error names the
function that was called, not the one that finally gets the options. `inspect.signature`
and `help` show the handed-on keywords one by one.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar, cast

import numpy as np

from corral.errors import OptionError, UnknownKeyword

F = TypeVar("F", bound=Callable[..., Any])


def checked_keywords(
    *,
    onward: Callable[..., Any] | None = None,
    refused: Mapping[str, str] | None = None,
    pool: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Refuse keywords that the decorated function does not have.

    Args:
        onward: the function that gets the `**options`.
        refused: keywords of `onward` that have no meaning here, and why.
        pool: the function whose keywords belong where the pool is made.
    """
    why = dict(refused or {})
    elsewhere = _keyword_only(pool) if pool is not None else ()

    def decorate(function: F) -> F:
        signature = _widened(inspect.signature(function), onward, why)
        known = frozenset(signature.parameters)
        name = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            if not kwargs.keys() <= known:
                names = [one for one in signature.parameters if one != "self"]
                hints = [
                    f"{name}() has no argument {word!r}: "
                    + (why.get(word) or _hint(word, _public(names), elsewhere))
                    for word in kwargs
                    if word not in known
                ]
                raise UnknownKeyword("; ".join(hints))
            return function(*args, **kwargs)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        return cast(F, checked)

    return decorate


def _widened(
    own: inspect.Signature, onward: Callable[..., Any] | None, refused: Collection[str]
) -> inspect.Signature:
    """The signature with the keywords of `onward` in the place of `**options`."""
    if onward is None:
        return own
    kept = [one for one in own.parameters.values() if one.kind is not one.VAR_KEYWORD]
    taken = {one.name for one in kept} | set(refused)
    more = [one for name, one in _keyword_only(onward).items() if name not in taken]
    return own.replace(parameters=[*kept, *more])


def _keyword_only(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Its public keywords."""
    parameters = inspect.signature(function).parameters
    public = {name: parameters[name] for name in _public(parameters)}
    return {name: one for name, one in public.items() if one.kind is one.KEYWORD_ONLY}


def _public(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.startswith("_")]


# Values -------------------------------------------------------------------------------


def is_count(value: object, least: int = 1) -> bool:
    """Whether it is an integer >= `least`, numpy's included; True is not a number."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and value >= least  # type: ignore[operator]


def check_count(name: str, value: object, least: int = 1) -> None:
    """Refuse what is not an integer >= `least`."""
    if not is_count(value, least):
        raise OptionError(f"{name} is {value!r}; it must be an integer >= {least}")


def is_number(value: object) -> bool:
    """Whether it is an int or a float, numpy's included; True is not a number."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_listed(value: object) -> bool:
    """Whether it is a list or the like, not a text or something that is used up."""
    return isinstance(value, Collection) and not isinstance(value, str)


def check_limit(name: str, value: Any, unit: str = "seconds") -> None:
    """Refuse what is neither a finite number > 0 nor None."""
    if value is not None and not (is_number(value) and 0 < value < math.inf):
        raise OptionError(f"{name} is {value!r}; it must be {unit} > 0, or None")


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False, numpy's included."""
    if not isinstance(value, (bool, np.bool_)):
        raise OptionError(f"{name} is {value!r:.200}; it must be True or False")


def check_callable(name: str, value: object, signature: str) -> None:
    """Refuse what can neither be called nor is None.

    Args:
        name: of the option.
        value: what was given.
        signature: how it is called, for the error.
    """
    if value is not None and not callable(value):
        raise OptionError(
            f"{name} is {value!r:.200}; it must be a function, {signature}, or None"
        )


def check_arrays(name: str, value: object) -> None:
    """Refuse what is neither a mapping nor None."""
    if value is not None and not isinstance(value, Mapping):
        raise OptionError(f"{name} is {value!r:.200}; it must be a dict of arrays")


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Refuse what is not one of the choices."""
    if value not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        listed = ", ".join(choices)
        raise OptionError(f"{name} is {value!r}; choose one of {listed}{meant}")


# Suggestions --------------------------------------------------------------------------

# Corral's keywords, and their names in other libraries.
ALIASES = {
    "num_envs": ("n_envs", "num_env", "n_env", "nenvs"),
    "env": ("env_fns", "env_fn", "env_id", "env_name", "id", "make_env", "env_creator"),
    "env_kwargs": ("make_kwargs", "env_config", "env_args"),
    "wrappers": ("wrapper", "wrapper_class", "wrapper_cls"),
    "backend": ("vectorization_mode", "vec_env_cls", "executor"),
    "workers": (
        *("num_workers", "n_workers", "max_workers", "n_jobs", "processes"),
        *("num_processes", "max_concurrency"),
    ),
    "autoreset": ("autoreset_mode", "auto_reset"),
    "seed": ("random_seed", "env_seed", "base_seed"),
    "worker_init": ("initializer",),
    "threads_per_worker": ("num_threads", "n_threads"),
    "step_timeout": ("timeout",),
    "reset_timeout": ("timeout",),
    "start_timeout": ("timeout",),
    "item_timeout": ("timeout",),
    "fn": ("func", "function"),
    "items": ("iterable", "inputs"),
    "policy": ("model",),
    "steps": ("n_steps", "num_steps"),
    "episodes": ("n_eval_episodes", "n_episodes", "num_episodes"),
    "max_length": ("max_episode_steps", "max_steps"),
}

# Arguments of `gymnasium.make` for the environment.
ENVS_OWN = ("render_mode", "max_episode_steps", "disable_env_checker")

_CLEAN = "worker processes are always started clean, on every platform; leave it out"
_APART = "give what is in it as keywords of the call itself"
# Keywords of other libraries that Corral does not need: the keyword of Corral's that a
# function must have for the hint, and the hint.
NEEDLESS = {
    **dict.fromkeys(("context", "start_method", "mp_context"), ("backend", _CLEAN)),
    **dict.fromkeys(("vector_kwargs", "vec_env_kwargs"), ("env_kwargs", _APART)),
    "daemon": ("backend", "worker processes always end with the program; leave it out"),
    "shared_memory": ("backend", "shared memory is always used; leave it out"),
    "chunksize": ("items", "a worker gets its next item when it is free; leave it out"),
    "deterministic": ("policy", "the policy decides that; leave it out"),
}


def _hint(word: str, names: Sequence[str], pool: Collection[str]) -> str:
    """The keyword to write instead."""
    if word in ENVS_OWN and "env_kwargs" in names:
        return f'it goes to the environment: env_kwargs={{"{word}": ...}}'
    ours = [one for one in names if word in ALIASES.get(one, ())]
    if ours:
        return f"it is called {' or '.join(ours)} here"
    where, instead = NEEDLESS.get(word, ("", ""))
    if where in names:
        return instead
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.7)
    if near:
        return f"did you mean {near[0]}?"
    if word in pool:
        return f"give it where the pool is made: Pool(..., {word}=...)"
    own = "env_kwargs" in names
    goes = f'; what the environment takes goes into env_kwargs={{"{word}": ...}}'
    return f"its arguments are {', '.join(names)}{goes if own else ''}"
