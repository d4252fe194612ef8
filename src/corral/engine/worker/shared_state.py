"""State that all envs of one process share, and whether an env changes it.

    classes       attributes of the env's class, of its wrappers', and of their bases
    modules       globals of the modules these come from, and of the user's other code,
                  with all classes and functions that are defined there
    closures      variables of the factory's function
    generators    random, numpy.random, and torch's where it is imported

and all that can be reached from these: see `state_reader`. Values are compared, not
watched: one look before and one after. What a library keeps behind its Python names
cannot be seen here.
"""

from __future__ import annotations

import functools
import hashlib
import random
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corral.engine.worker.state_reader import PLAIN_TYPES, StateReader, is_state

MAX_LAYERS = 256
SHOWN_TYPES = (bool, int, float, str)
_CONTAINERS = (dict, list, tuple, deque, set, frozenset)
_KINDS_OF_VALUES = (*PLAIN_TYPES, *_CONTAINERS, np.ndarray, np.generic, type)
# Packages whose own state is not an env's.
LIBRARY_PACKAGES = frozenset(
    ("gymnasium", "pettingzoo", "corral", "numpy", "torch", "cloudpickle")
)
ENV_MODULES = ("gymnasium.envs", "pettingzoo.", "corral.zoo", "corral.tools.testing")
LIBRARY_MODULES = ("pettingzoo.utils", "gymnasium.envs.registration")


# Generators ---------------------------------------------------------------------------


def generator_states() -> dict[str, Any]:
    """The states of the global generators, by name."""
    kind, words, *rest = np.random.get_state()
    states: dict[str, Any] = {
        "random": random.getstate(),
        "numpy.random": (kind, np.asarray(words).tobytes(), *rest),
    }
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


def advanced_generators(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The generators that are not where they were; not those that are new."""
    return [name for name, state in now.items() if before.get(name, state) != state]


# Attributes ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that envs share with others, at one moment.

    Attributes:
        values: Name -> something that is equal as long as the value is.
        cached: The same of what caches give out: more of it does not count as a change.
        unread: What could not be looked at; "" if all was.
        classes: The classes of the envs, in the order in which they were looked at.
    """

    values: dict[str, Any]
    cached: dict[str, Any]
    unread: str = ""
    classes: tuple[type, ...] = ()


def snapshot(
    envs: Iterable[Any], factories: Iterable[Any], before: Snapshot | None = None
) -> Snapshot:
    """What these envs share with others.

    Args:
        envs: the envs.
        factories: what made them.
        before: the snapshot that this one is to be compared with.
    """
    classes = _classes(envs)
    if before is not None:
        # An env may change its own class, and the new one was not changed by that:
        # it is among what its module holds.
        new = [one for one in classes if one not in before.classes]
        classes = [*before.classes, *(one for one in new if not _is_held(one))]
    spaces = _namespaces(classes, factories)
    reader, found = StateReader(_follower(spaces)), dict[str, Any]()
    state = {
        f"{name}.{key}": value
        for name, space in spaces.items()
        for key, value in list(space.items())
        if is_state(key, value)
    }
    for path, value in state.items():
        found[path] = reader.read(path, value)
        if not (isinstance(value, _KINDS_OF_VALUES) or callable(value)):
            # An instance: another one in its place is a change.
            found[f"{path} (which object it is)"] = id(value)
    # The list grows meanwhile, by caches in caches.
    cached = {name: reader.read(name, value) for name, value in reader.cached}
    return Snapshot(found, cached, reader.unread, tuple(classes))


def _follower(spaces: Mapping[str, Mapping[str, Any]]) -> Callable[[str], bool]:
    """Return a test: whether a module is the env's or the user's own code."""
    homes = {str(space.get("__module__", name)) for name, space in spaces.items()}
    tops = {home.partition(".")[0] for home in homes if _is_the_envs(home)}
    tops -= LIBRARY_PACKAGES

    def follows(module: str) -> bool:
        return module in homes or str(module).partition(".")[0] in tops

    return follows


def first_change(before: Snapshot, now: Snapshot) -> str:
    """What changed from one snapshot to the next, in words; "" if nothing did."""
    for name, value in now.values.items():
        if name not in before.values:
            return f"{name} was added"
        old = before.values[name]
        if old != value or type(old) is not type(value):
            plain = isinstance(old, SHOWN_TYPES) and isinstance(value, SHOWN_TYPES)
            both = f" from {old!s:.40} to {value!s:.40}" if plain else ""
            return f"{name} changed{both}"
    again = (
        n for n, value in now.cached.items() if before.cached.get(n, value) != value
    )
    return next((f"{name} changed" for name in again), "")


def sources(envs: Iterable[Any], factories: Iterable[Any]) -> dict[str, str]:
    """Path -> digest of its text, of every module that these envs are made of."""
    modules = _modules(_classes(envs), list(_functions(factories)))
    paths = {getattr(module, "__file__", None) for module in modules}
    return {path: digest_of(path) for path in paths if path}


def digest_of(path: str) -> str:
    """Of a file's bytes; "" if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


# Where it is kept ---------------------------------------------------------------------


def _namespaces(
    classes: list[type], factories: Iterable[Any]
) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {
        one.__qualname__: vars(one) for one in classes
    }
    parts = (part for one in classes for part in vars(one).values())
    methods = (part for part in parts if isinstance(part, types.FunctionType))
    functions = [*_functions(factories), *methods]
    for function in functions:
        # Of a class that was sent by value this is not a module's dict.
        home = function.__globals__.get("__name__", "")
        if _is_the_envs(home):
            found.setdefault(home, function.__globals__)
        if function.__closure__:
            found[f"the variables of {function.__qualname__}"] = _variables(function)
    for module in _modules(classes, functions):
        found.setdefault(module.__name__, vars(module))
    return found


def _classes(envs: Iterable[Any]) -> list[type]:
    layers = (layer for env in envs for layer in _layers(env))
    kinds = (kind for layer in layers for kind in type(layer).__mro__)
    return list(dict.fromkeys(one for one in kinds if _is_the_envs(one.__module__)))


def _is_held(kind: type) -> bool:
    """Whether its module has it under its name."""
    value: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        value = getattr(value, name, None)
    return value is kind


def _layers(env: Any) -> Iterable[Any]:
    """The env, and what is inside its wrappers."""
    seen, waiting = dict[int, Any](), [env]
    while waiting and len(seen) < MAX_LAYERS:
        layer = waiting.pop()
        if layer is not None and id(layer) not in seen:
            seen[id(layer)] = layer
            inside = getattr(layer, "__dict__", {})
            names = ("env", "_env", "aec_env", "par_env", "unwrapped")
            waiting += [inside[name] for name in names if name in inside]
    return seen.values()


def _functions(values: Iterable[Any], depth: int = 4) -> Iterator[Any]:
    """Functions that a factory is made of."""
    for value in values:
        if isinstance(value, functools.partial):
            parts = (value.func, *value.args, *value.keywords.values())
            yield from _functions(parts, depth - 1)
        elif isinstance(value, (list, tuple)) and depth:
            yield from _functions(value, depth - 1)
        elif isinstance(value, types.MethodType):
            yield value.__func__
        elif isinstance(value, types.FunctionType):
            yield value
            if depth:
                yield from _functions(_variables(value).values(), depth - 1)


def _variables(function: Any) -> dict[str, Any]:
    found = {}
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it has none yet
            found[name] = cell.cell_contents
    return found


def _modules(
    classes: Iterable[type], functions: Iterable[Any]
) -> list[types.ModuleType]:
    """Those of the env and beside it, and all that were not installed."""
    homes = {one.__module__ for one in classes}
    homes |= {one.__module__ for one in functions if _is_the_envs(one.__module__ or "")}
    packages = {f"{home.rpartition('.')[0]}." for home in homes if "." in home}
    return [
        module
        for name, module in list(sys.modules.items())
        if name in homes or name.startswith(tuple(packages)) or _is_own(name, module)
    ]


def _is_own(name: str, module: types.ModuleType) -> bool:
    """Whether it is the user's code, judged by where its file is."""
    path = getattr(module, "__file__", None) or ""
    installed = "site-packages" in path or "dist-packages" in path
    return bool(path) and not installed and _is_the_envs(name)


@functools.cache
def _is_the_envs(module: str) -> bool:
    """Whether what it holds may be an env's, and not a library's own."""
    if module.startswith((*LIBRARY_MODULES, *ENV_MODULES)):
        return not module.startswith(LIBRARY_MODULES)
    top = module.partition(".")[0]
    standard = top in sys.stdlib_module_names and top != "__main__"
    return bool(top) and top not in LIBRARY_PACKAGES and not standard
