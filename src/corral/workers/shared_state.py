"""What all envs of one process share, and whether an env changes it.

    classes       attributes of the env's class, of its wrappers', and of their bases
    modules       globals of the modules these come from, and of the user's other code
    closures      variables of the factory's function
    generators    random, numpy.random, and torch's where it is imported

Values are compared, not watched: one look before and one after. What a library keeps
behind its Python names cannot be seen here.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import logging
import random
import sys
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space

MOST_ITEMS = 256
"""Of a container that is looked into; of a larger one its length is compared."""
MOST_BYTES = 1 << 20
"""The same for arrays."""
DEPTH = 3
NOT_THE_ENVS = ("gymnasium", "pettingzoo", "corral", "numpy", "torch", "cloudpickle")
"""Packages whose own bookkeeping says nothing about an env."""
ENVS_OF_THESE = ("gymnasium.envs", "pettingzoo.", "corral.zoo", "corral.testing")
NOT_ENVS = ("pettingzoo.utils", "gymnasium.envs.registration")
CODE = (
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    functools._lru_cache_wrapper,
    type,
    property,
    classmethod,
    staticmethod,
    logging.Logger,
    Space,  # of class level as a rule; what is drawn from it shows in what an env does
)


# Generators ---------------------------------------------------------------------------


def generator_states() -> dict[str, Any]:
    """The states of the global generators, by name."""
    states: dict[str, Any] = {"random": random.getstate()}
    kind, words, *rest = np.random.get_state()
    states["numpy.random"] = (kind, np.asarray(words).tobytes(), *rest)
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


def moved(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The generators that are not where they were; not those that are new."""
    return [name for name, state in now.items() if before.get(name, state) != state]


# Attributes ---------------------------------------------------------------------------


def snapshot(envs: Iterable[Any], factories: Iterable[Any]) -> dict[str, Any]:
    """Name -> value at this moment, of all that these envs share with others."""
    found: dict[str, Any] = {}
    for name, space in _namespaces(envs, factories).items():
        for key, value in list(space.items()):
            if not key.startswith("__") and not isinstance(value, CODE):
                found[f"{name}.{key}"] = _read(value)
    return found


def first_change(before: dict[str, Any], now: dict[str, Any]) -> str:
    """What changed from one snapshot to the next, in words; "" if nothing did."""
    for name, value in now.items():
        old = before.get(name, before)
        if old is not before and old == value:
            continue
        if old is before:
            return f"{name} was added"
        return f"{name} changed{_both(old, value)}"
    return ""


def _both(old: Any, new: Any) -> str:
    plain = (bool, int, float, str)
    if isinstance(old, plain) and isinstance(new, plain):
        return f" from {old!s:.40} to {new!s:.40}"
    return ""


def sources(envs: Iterable[Any], factories: Iterable[Any]) -> dict[str, str]:
    """Path -> digest of its text, of every module that these envs are made of."""
    found: dict[str, str] = {}
    for module in _modules(_classes(envs), list(_functions(factories))):
        path = getattr(module, "__file__", None)
        if path and path not in found:
            found[path] = digest_of(path)
    return found


def digest_of(path: str) -> str:
    """Of a file's bytes; "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


# Where it is kept ---------------------------------------------------------------------


def _namespaces(
    envs: Iterable[Any], factories: Iterable[Any]
) -> dict[str, Mapping[str, Any]]:
    classes = _classes(envs)
    found: dict[str, Mapping[str, Any]] = {
        one.__qualname__: vars(one) for one in classes
    }
    functions = list(_functions(factories))
    for one in classes:
        functions += [part for part in vars(one).values() if _is_function(part)]
    for function in functions:
        # Of a class that travelled by value this is no module's dict.
        home = function.__globals__.get("__name__", "")
        if _is_the_envs(home):
            found.setdefault(home, function.__globals__)
        if function.__closure__:
            found[f"the variables of {function.__qualname__}"] = _variables(function)
    for module in _modules(classes, functions):
        found.setdefault(module.__name__, vars(module))
    return found


def _classes(envs: Iterable[Any]) -> list[type]:
    found: dict[type, None] = {}
    for env in envs:
        for layer in _layers(env):
            for kind in type(layer).__mro__:
                if _is_the_envs(kind.__module__):
                    found[kind] = None
    return list(found)


def _layers(env: Any) -> Iterator[Any]:
    """The env, and what is inside its wrappers."""
    seen: list[Any] = []
    waiting = [env]
    while waiting and len(seen) < MOST_ITEMS:
        layer = waiting.pop()
        if layer is None or any(layer is one for one in seen):
            continue
        seen.append(layer)
        inside = getattr(layer, "__dict__", {})
        names = ("env", "_env", "aec_env", "par_env", "unwrapped")
        waiting += [inside[name] for name in names if name in inside]
        yield layer


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
        elif _is_function(value):
            yield value
            if depth:
                yield from _functions(_variables(value).values(), depth - 1)


def _is_function(value: Any) -> bool:
    return isinstance(value, types.FunctionType)


def _variables(function: Any) -> dict[str, Any]:
    found = {}
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it has none yet
            continue
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
    """Whether it is the user's code, as far as that can be told from where it is."""
    path = getattr(module, "__file__", None) or ""
    installed = "site-packages" in path or "dist-packages" in path
    return bool(path) and not installed and _is_the_envs(name)


@functools.cache
def _is_the_envs(module: str) -> bool:
    """Whether what it holds may be an env's, and not a library's own."""
    top = module.partition(".")[0]
    if module.startswith(NOT_ENVS):
        return False
    if module.startswith(ENVS_OF_THESE):
        return True
    standard = top in sys.stdlib_module_names and top != "__main__"
    return bool(top) and top not in NOT_THE_ENVS and not standard


# Values -------------------------------------------------------------------------------


def _read(value: Any) -> Any:
    try:
        return _fingerprint(value, DEPTH)
    except Exception:  # its own __repr__ or __getattr__: which object it is, then
        return type(value).__qualname__, id(value)


def _fingerprint(value: Any, depth: int) -> Any:
    """Something that is equal as long as the value is, and does not change with it."""
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return value
    if isinstance(value, (float, complex, np.generic, itertools.count)):
        return repr(value)
    if isinstance(value, np.ndarray):
        return _of_array(value)
    if isinstance(value, CODE):
        return "code"
    if not depth:
        return type(value).__qualname__
    if isinstance(value, dict):
        return _of_items(value, value.items(), depth)
    if isinstance(value, (list, tuple, deque)):
        return _of_items(value, enumerate(value), depth)
    if isinstance(value, (set, frozenset)):
        return _of_items(value, enumerate(sorted(map(repr, value))), depth)
    return _of_object(value, depth)


def _of_array(array: np.ndarray[Any, Any]) -> Any:
    known = (array.shape, array.dtype.str)
    if array.dtype.hasobject or array.nbytes > MOST_BYTES:
        return (*known, id(array))
    return (*known, hashlib.blake2b(array.tobytes(), digest_size=16).digest())


def _of_items(container: Any, items: Iterable[Any], depth: int) -> Any:
    kind = type(container).__qualname__
    if len(container) > MOST_ITEMS:
        return kind, len(container)
    parts = [(repr(key), _fingerprint(one, depth - 1)) for key, one in list(items)]
    return kind, len(container), parts


def _of_object(value: Any, depth: int) -> Any:
    kind = type(value).__qualname__
    if isinstance(value, random.Random):
        return kind, value.getstate()
    if isinstance(value, np.random.Generator):
        return kind, repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return kind, repr(value.get_state(legacy=False))
    # Another object in its place is a change; inside others, what they hold counts.
    which = id(value) if depth == DEPTH else None
    inside = getattr(value, "__dict__", None)
    if not isinstance(inside, dict) or len(inside) > MOST_ITEMS:
        return kind, which
    parts = [(key, _fingerprint(one, depth - 1)) for key, one in list(inside.items())]
    return kind, which, parts
