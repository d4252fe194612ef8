"""What a worker process receives before any factory runs, and how it is pickled.

The parent packs; the worker unpacks, in this order: environment, working directory and
`sys.path` (by the bootstrap, before the first import), then `sys.argv`, log levels and
the parent's additions to Gymnasium's registry, then the user's functions.

Not carried: monkeypatches, globals changed at run time, logging filters and handlers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import inspect
import io
import logging
import os
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import gymnasium

from corral.errors import FactoryError

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def absolute_path() -> list[str]:
    """`sys.path` as another directory would need it.

    Without entries that Python cannot look in either: numbers, None, a name with a NUL,
    and relative ones where the working directory is gone.
    """
    found = []
    for entry in list(sys.path):
        with contextlib.suppress(TypeError, ValueError, OSError):
            path = str.__str__(os.fsdecode(entry))  # of a subclass, the text alone
            found += [os.path.abspath(path)] if "\0" not in path else []
    return found


def portable_argv() -> list[Any]:
    """`sys.argv`, each in its place: paths and other objects as text."""
    plain = (str, bytes, bool, int, float, type(None))
    argv = getattr(sys, "argv", [])
    paths = [os.fspath(one) if isinstance(one, os.PathLike) else one for one in argv]
    return [one if type(one) in plain else str(one) for one in paths]


def environment(threads: int | None, device: str | None) -> dict[str, str]:
    """The parent's environment, with thread counts in place before any import."""
    environ = dict(os.environ)
    if threads is not None:
        environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    number = (device or "").rpartition(":")[2]
    if number.isdigit():
        environ["MUJOCO_EGL_DEVICE_ID"] = environ["EGL_DEVICE_ID"] = number
    return environ


# Whether the receiver can import a module by its name.
Found = Callable[[str], bool]


@functools.cache
def importable(name: str) -> bool:
    """Whether another process with our `sys.path` can import this module by name."""
    module = sys.modules.get(name)
    if name == "__main__" or module is None:
        return name != "__main__"
    if getattr(module, "__file__", None) is None:
        # Built-in, frozen and namespace modules have a spec; made-up ones do not.
        return getattr(module, "__spec__", None) is not None
    path: Any = None
    origin: str | None = None
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        found = importlib.machinery.PathFinder.find_spec(".".join(parts[:depth]), path)
        if found is None:
            # Not on the path: maybe an import hook (editable installs) knows it.
            return _known_to_a_hook(parts[0])
        path, origin = found.submodule_search_locations, found.origin
    real = os.path.realpath
    return origin is None or real(origin) == real(str(module.__file__))


def _known_to_a_hook(top: str) -> bool:
    # pytest's assertion rewriter finds what PathFinder does, and workers lack it.
    return any(
        finder.find_spec(top, None) is not None
        for finder in sys.meta_path
        if finder is not importlib.machinery.PathFinder
        and hasattr(finder, "find_spec")
        and not type(finder).__module__.startswith("_pytest")
    )


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle, with modules that a worker cannot import sent by value as well.

    Args:
        found: whether the receiver can import a module by its name.
        options: of `pickle.Pickler`.
    """

    def __init__(self, buffer: io.BytesIO, found: Found, **options: Any) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL, **options)
        self._found = found

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, types.FunctionType)):
            module = sys.modules.get(getattr(obj, "__module__", None) or "")
            if module is not None and not self._found(module.__name__):
                known = ("__main__", *cloudpickle.list_registry_pickle_by_value())
                if module.__name__ not in known:
                    cloudpickle.register_pickle_by_value(module)
                    try:
                        return super().reducer_override(obj)
                    finally:
                        cloudpickle.unregister_pickle_by_value(module)
        return super().reducer_override(obj)


def dumps(value: Any, found: Found = importable, **options: Any) -> bytes:
    """Pickle anything a user wrote: lambdas, closures, classes of `__main__`."""
    buffer = io.BytesIO()
    _Pickler(buffer, found, **options).dump(value)
    return buffer.getvalue()


_REMEDY = (
    'Create it inside the factory or function, or use backend="serial" or "thread", '
    "which send nothing."
)
# Policies are pickled on every backend: each worker has a copy of its own.
_REMEDIES = {
    "the policy": "Pass policy_factory=make_policy, a function that makes it in each "
    'worker; or, with a Pool, act_in="caller".',
    "policy_factory": "Pass a function of a module that creates all it needs; or, with "
    'a Pool, act_in="caller".',
}


def pack(value: Any, what: str, found: Found = importable) -> bytes:
    """Pickle what the user gave us, or say which part of it cannot be pickled."""
    try:
        return dumps(value, found)
    except Exception as error:
        culprit = _unpicklable_part(value)
        receiver = "a worker" if what in _REMEDIES else "a worker process"
        raise FactoryError(
            f"{what} cannot be sent to {receiver}: {culprit} cannot be pickled "
            f"({type(error).__name__}: {error!s:.2000}). {_REMEDIES.get(what, _REMEDY)}"
        ) from error


def _unpicklable_part(value: Any, *path: str) -> str:
    """The innermost part that cannot be pickled, as a path from the user's value."""
    for label, part in _parts(value) if len(path) < 6 else ():
        try:
            dumps(part)
        except Exception:
            return _unpicklable_part(part, *path, label)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return f"{', '.join(path) or 'it'} ({kind})"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, types.MethodType):
        yield "its object", value.__self__
    elif isinstance(value, types.FunctionType):
        names = inspect.getclosurevars(value)
        yield from ((f"its variable '{k}'", v) for k, v in names.nonlocals.items())
        yield from ((f"its global '{k}'", v) for k, v in names.globals.items())
        defaults = enumerate(value.__defaults__ or ())
        yield from ((f"its default {i}", part) for i, part in defaults)
    elif isinstance(value, functools.partial):
        yield "its function", value.func
        yield from ((f"its argument {i}", part) for i, part in enumerate(value.args))
        yield from ((f"its argument '{k}'", part) for k, part in value.keywords.items())
    elif isinstance(value, dict):
        yield from ((f"its key {key!r}", part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"its item {i}", part) for i, part in enumerate(value))
    elif not isinstance(value, type) and hasattr(value, "__dict__"):
        yield from ((f"its attribute '{k}'", part) for k, part in vars(value).items())


def pack_registry() -> list[bytes]:
    """Pickle every env that the parent has registered, if it can be pickled."""
    packed = []
    for spec in gymnasium.registry.values():
        with contextlib.suppress(Exception):  # a worker then says "not registered"
            packed.append(dumps(spec))
    return packed


def unpack_registry(packed: list[bytes]) -> None:
    """Add what this process does not have, and what the parent has changed."""
    # A module imported here later registers its envs again, without a second warning.
    warnings.filterwarnings("ignore", ".*Overriding environment .* in registry")
    for spec in unpacked_specs(packed):
        gymnasium.registry[spec.id] = spec


def unpacked_specs(packed: list[bytes]) -> Iterator[Any]:
    """What `pack_registry` packed."""
    for data in packed:
        with contextlib.suppress(Exception):  # its module may be missing here
            yield pickle.loads(data)


def pack_log_levels() -> dict[str, int]:
    """The levels set in the parent, the root's under the empty name."""
    loggers = {"": logging.root, **logging.root.manager.loggerDict}
    return {
        name: logger.level
        for name, logger in loggers.items()
        if isinstance(logger, logging.Logger)
        and (logger.level != logging.NOTSET or not name)
    }


class Unpacked:
    """Something that travelled as bytes; opened once, where it is used."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self) -> Any:
        return pickle.loads(self._data)

    @property
    def has_code(self) -> bool:
        """Whether code came along by value, with all that its classes held then."""
        return b"cloudpickle" in self._data

    @property
    def has_class(self) -> bool:
        """Whether a class is part of that code."""
        return b"_make_skeleton_class" in self._data


def opened(packed: Callable[..., Any] | Unpacked | None) -> Any:
    """The user's object, whether it travelled (processes) or not (serial, threads)."""
    return packed.open() if isinstance(packed, Unpacked) else packed
