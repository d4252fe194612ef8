"""Code that a config names: wrappers, networks, and what workers and pools call.

    wrappers:
      - my_wrappers:Grey                             module:Class
      - my_wrappers:Stack: {count: 4}                with its arguments
      - TimeLimit: {max_episode_steps: 200}          of gymnasium.wrappers
    network: my_nets:make
    per_worker: my_data:load

An error names the setting, its value, and what is wrong with it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import wrappers as gymnasium_wrappers
from numpy.typing import NDArray

from corral.core import Factory
from corral.engine.adapters.env_names import named_attribute, near_names
from corral.engine.adapters.factories import OuterFactory, Wrap, wrapped
from corral.errors import OptionError
from corral.train.recipes.config import RunConfig


@dataclass(frozen=True, slots=True)
class WrappedFactory(OuterFactory):
    """Makes an env with wrappers around it, the first one innermost."""

    wraps: tuple[Wrap, ...]

    def __call__(self) -> Any:
        return wrapped(self.make, self.wraps)


def with_wrappers(factory: Factory, config: RunConfig) -> Factory:
    """Return what makes an env with the config's wrappers."""
    wraps = wrappers_of(config)
    return WrappedFactory(factory, wraps) if wraps else factory


def wrappers_of(config: RunConfig) -> tuple[Wrap, ...]:
    """Return the wrappers of a config, each a function of the env."""
    return tuple(
        _wrapper(f"wrappers[{at}]", one) for at, one in enumerate(config.wrappers)
    )


def _wrapper(key: str, given: str | Mapping[str, Any]) -> Wrap:
    if isinstance(given, str):
        name, kwargs = given, {}
    else:
        ((name, values),) = given.items()
        kwargs = dict(values or {})
    found = named(key, name) if ":" in name else _of_gymnasium(key, name)
    try:
        inspect.signature(found).bind(None, **kwargs)
    except TypeError as error:
        raise OptionError(
            f"{key} is {name!r}, and cannot be called with an env and "
            f"{kwargs or 'no arguments'}: {error}. Write its arguments as "
            f"{{{name}: {{argument: value}}}}"
        ) from None
    except ValueError:  # written in C: it checks its arguments itself
        pass
    return functools.partial(found, **kwargs) if kwargs else found


def _of_gymnasium(key: str, name: str) -> Any:
    found = getattr(gymnasium_wrappers, name, None)
    if found is None:
        near = near_names(name, gymnasium_wrappers.__all__)
        raise OptionError(
            f"{key} is {name!r}, and gymnasium.wrappers has none of that name{near}; "
            "write one of your own as module:Class"
        )
    return found


def named(key: str, value: str) -> Any:
    """Return the function or class that a setting names."""
    with naming(key, value):
        if ":" not in value:
            raise OptionError("write it as module:function")
        found = named_attribute(value)
        if not callable(found):
            raise OptionError(f"that is {found!r:.80}, not a function or class")
    return found


@contextmanager
def naming(key: str, value: Any) -> Iterator[None]:
    """Begin errors with the setting and its value."""
    try:
        yield
    except OptionError as error:
        raise OptionError(f"{key} is {value!r}: {error}") from error


# Options of pools ---------------------------------------------------------------------


def worker_options(config: RunConfig) -> dict[str, Any]:
    """Return the options of a pool that are code or arrays in the config."""
    asked: dict[str, Any] = {}
    for key in ("per_worker", "worker_init", "sample_task"):
        if value := getattr(config, key):
            asked[key] = named(key, value)
    if config.shared:
        asked["shared"] = _arrays(config.shared)
    if way := config.task_by:
        asked["task_by"] = named("task_by", way) if ":" in way else way
    return asked


def _arrays(given: str | Mapping[str, str]) -> dict[str, NDArray[Any]]:
    if isinstance(given, str):
        arrays = named("shared", given)()
        if not isinstance(arrays, Mapping):
            raise OptionError(
                f"shared is {given!r}: it returned {type(arrays).__name__}; it must "
                "return a dict of arrays by name"
            )
        return dict(arrays)
    return {name: _array(f"shared.{name}", path) for name, path in given.items()}


def _array(key: str, path: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(Path(path), allow_pickle=False)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"{key} is {path!r}, and no array can be read from it: {error}. Write one "
            "with numpy.save(path, array)"
        ) from None
    if not isinstance(array, np.ndarray):
        raise OptionError(f"{key} is {path!r}, not one array: save it as .npy")
    return array


def curriculum_of(config: RunConfig) -> Callable[[Any, int], Any] | None:
    """Return the function that is called with the pool and the steps so far."""
    if not config.curriculum:
        return None
    found: Callable[[Any, int], Any] = named("curriculum", config.curriculum)
    return found
