"""Read all state that can be reached from a value, to compare it with a later reading.

    followed       containers, instances (`__dict__`, slots), classes and functions of
                   the modules that are looked at (defaults, closures, attributes,
                   `lru_cache`), partials, bound methods, context variables
    by checksum    arrays, buffers, CPU tensors, long lists of plain values
    by state       generators of random numbers
    not state      code, loggers, locks, files, weak references, patterns, and the
                   modules, classes and functions of libraries

A reading is a list of marks. It is bounded by count, bytes and CPU time. What could not
be read is named in `unread`: then equal readings do not say that nothing has changed.
"""

from __future__ import annotations

import contextvars
import functools
import gc
import io
import itertools
import logging
import marshal
import random
import re
import sys
import threading
import time
import types
import warnings
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

MAX_OBJECTS = 200_000
MAX_BYTES = 256 << 20
# CPU time of one reading: a trial has 0.5 s, and takes two of them.
MAX_READ_SECONDS = 0.15
# Objects from one look at the clock to the next.
OBJECTS_PER_CLOCK_CHECK = 256
# Items from which on it pays to see whether all are plain.
LONG_SEQUENCE = 16

PLAIN_TYPES = frozenset({type(None), bool, int, float, complex, str, bytes, type(...)})
STATELESS_TYPES = (
    types.GenericAlias,
    types.UnionType,
    np.ufunc,
    np.dtype,
    logging.Filterer,
    logging.LoggerAdapter,
    io.IOBase,
    re.Pattern,
    weakref.ReferenceType,
    *weakref.ProxyTypes,
    type(threading.Lock()),
    type(threading.RLock()),
)
FUNCTION_TYPES = (
    types.FunctionType,
    staticmethod,
    classmethod,
    property,
    functools.partial,
    functools._lru_cache_wrapper,
)
GENERATOR_TYPES = (
    random.Random,
    np.random.BitGenerator,
    np.random.Generator,
    np.random.RandomState,
)
# Modules whose objects describe types.
TYPING_MODULES = ("typing", "typing_extensions")


class OutOfBudget(BaseException):
    """There is more than may be looked at; it passes by handlers of other errors."""


class StateReader:
    """One reading. What was read once is not read again, wherever it turns up.

    Args:
        follows: whether classes and functions of a module are looked into.
    """

    def __init__(self, follows: Callable[[str], bool]) -> None:
        # What could not be read, and why; "" if all was.
        self.unread = ""
        # Results that caches give out, by name; to be read, and compared by name.
        self.cached: list[tuple[str, Any]] = []
        self._follows = follows
        self._seen: dict[int, Any] = {}  # the values too: an id is for a lifetime
        self._bytes = 0
        self._until = time.thread_time() + MAX_READ_SECONDS
        self._marks: list[Any] = []
        self._waiting: list[Any] = []

    def read(self, name: str, value: Any) -> Any:
        """Return something that is equal as long as the value is.

        Args:
            name: what the value is called in `unread`.
            value: anything.
        """
        if type(value) in PLAIN_TYPES and type(value) is not float:
            return value
        self._marks, self._waiting, self._name = [], [value], name
        try:
            while self._waiting:
                self._one(self._waiting.pop())
        except OutOfBudget as reason:
            self.unread = self.unread or f"there is more in {name} than {reason}"
        return self._marks

    def _miss(self, value: Any, why: str) -> None:
        kind = type(value).__qualname__
        self.unread = self.unread or (
            f"{self._name}, which is or holds an object of type {kind}, {why}"
        )

    def _one(self, value: Any) -> None:
        kind = type(value)
        if kind in PLAIN_TYPES:
            self._marks.append((kind, repr(value) if kind is float else value))
        elif id(value) in self._seen:
            self._marks.append(id(value))
        else:
            self._count(value)
            self._marks.append(kind.__qualname__)
            try:
                self._into(value)
            except Exception as error:  # the value's own code
                self._miss(value, f"cannot be read ({error!r:.80})")

    def _count(self, value: Any) -> None:
        self._seen[id(value)] = value
        count = len(self._seen)
        if count > MAX_OBJECTS:
            raise OutOfBudget(f"{MAX_OBJECTS} objects")
        if not count % OBJECTS_PER_CLOCK_CHECK and time.thread_time() > self._until:
            raise OutOfBudget(f"can be read in {MAX_READ_SECONDS:g} s")

    def _mark(self, *marks: Any) -> None:
        self._marks += marks

    def _push(self, *values: Any) -> None:
        self._waiting += values

    # Kinds ----------------------------------------------------------------------------

    def _into(self, value: Any) -> None:
        if type(value).__module__ in TYPING_MODULES:
            return
        readers = (read for kinds, read in _READERS if isinstance(value, kinds))
        next(readers, StateReader._of_other)(self, value)

    def _of_other(self, value: Any) -> None:
        if not (self._of_compiled(value) or self._of_torch(value)):
            self._of_instance(value)

    def _of_module(self, module: types.ModuleType) -> None:
        if self._follows(module.__name__):
            self._of_names(module)

    def _of_names(self, owner: Any) -> None:
        for key, value in list(vars(owner).items()):
            if is_state(key, value):
                self._mark(key)
                self._push(value)

    def _of_class(self, kind: type) -> None:
        if not self._follows(kind.__module__):
            self._mark(id(kind))
            return
        self._of_names(kind)
        self._push(type(kind), *kind.__mro__[1:])

    def _of_function(self, function: types.FunctionType) -> None:
        home = function.__module__ or function.__globals__.get("__name__", "")
        if not self._follows(home):
            self._mark(id(function))
            return
        self._push(function.__defaults__, function.__kwdefaults__, vars(function))
        for cell in function.__closure__ or ():
            try:
                self._push(cell.cell_contents)
            except ValueError:  # it has none yet
                self._mark("empty")

    def _of_cache(self, cache: Any) -> None:
        """Results are read later: a cache that holds more of them has not changed."""
        self._push(cache.__wrapped__)
        for key, result in _results_of(cache):
            shown = repr(key) if type(key) in PLAIN_TYPES else id(key)
            self.cached.append(
                (f"what {cache.__qualname__} has cached ({shown!s:.40})", result)
            )

    def _of_running(self, value: Any) -> None:
        """Generators and coroutines, as far as they can be seen."""
        frames = [getattr(value, f"{one}_frame", None) for one in ("gi", "cr", "ag")]
        for frame in filter(None, frames):
            self._mark(frame.f_lasti)
            self._push(dict(frame.f_locals))
            self._miss(value, "does not show all of its state")

    def _of_compiled(self, value: Any) -> bool:
        """Functions compiled by a library, as by numba: what is behind one is code."""
        if not callable(value) or self._follows(type(value).__module__):
            return False
        wrapped = getattr(value, "__wrapped__", None)
        if wrapped is None and not hasattr(value, "__qualname__"):
            return False
        self._push(wrapped)
        return True

    def _of_torch(self, value: Any) -> bool:
        torch: Any = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "Tensor"):
            return False
        if isinstance(value, torch.Generator):
            self._mark(value.get_state().numpy().tobytes())
        elif isinstance(value, torch.Tensor):
            self._mark(tuple(value.shape), value._version)
            if value.device.type == "cpu" and value.layout == torch.strided:
                self._sum(value.detach().contiguous().view(torch.uint8).numpy())
        return isinstance(value, (torch.Generator, torch.Tensor))

    def _of_array(self, array: np.ndarray[Any, Any]) -> None:
        self._mark(array.shape, array.dtype.str)
        if array.dtype.hasobject:
            self._push(array.tolist())
        else:
            self._sum(array)

    def _sum(self, buffer: Any) -> None:
        view = memoryview(buffer)
        self._bytes += view.nbytes
        if self._bytes > MAX_BYTES:
            raise OutOfBudget(f"{MAX_BYTES >> 20} MiB")
        plain = view if view.contiguous else view.tobytes()
        self._mark(view.nbytes, zlib.crc32(plain))

    # Instances ------------------------------------------------------------------------

    def _of_instance(self, value: Any) -> None:
        held = self._of_container(value)
        if not held:
            with suppress(TypeError, BufferError):  # it has no buffer
                self._sum(value)
                held = True
        inside = _dict_of(value)
        parts = {**(inside or {}), **dict(_slots_of(value))}
        self._mark(*parts)
        self._push(*parts.values())
        held |= any("__slots__" in vars(kind) for kind in type(value).__mro__)
        if not held and inside is None and type(value) is not object:
            self._of_opaque(value)

    def _of_container(self, value: Any) -> bool:
        if isinstance(value, (dict, types.MappingProxyType)):
            for key, part in list(value.items()):
                self._push(key, part)
        elif isinstance(value, (list, tuple, deque)):
            if len(value) > LONG_SEQUENCE and set(map(type, value)) <= PLAIN_TYPES:
                # Version 2: later ones also write whether an item is referred to.
                self._sum(marshal.dumps(list(value), 2))
            else:
                self._push(*value)
        elif isinstance(value, (set, frozenset)):
            plain = {type(one) for one in value} <= PLAIN_TYPES
            self._mark(frozenset(value) if plain else frozenset(map(id, value)))
            if not plain:
                self._push(*sorted(value, key=id))
        else:
            return False
        self._mark(len(value))
        return True

    def _of_opaque(self, value: Any) -> None:
        """Objects implemented in C."""
        kind: Any = type(value)
        plain = kind.__reduce__ is object.__reduce__
        if not (plain and kind.__reduce_ex__ is object.__reduce_ex__):
            self._of_reduced(value)
        # Of Python's own types only iterators have a state that is not shown.
        elif kind.__module__ != "builtins" or hasattr(kind, "__next__"):
            self._miss(value, "does not show its state")

    def _of_reduced(self, value: Any) -> None:
        """By what it returns to `pickle`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # iterators will not be pickled for ever
            reduced = value.__reduce_ex__(2)
        for part in [reduced] if isinstance(reduced, str) else reduced[1:]:
            self._push(list(part) if hasattr(type(part), "__next__") else part)


# How values of a type are read; the first that fits.
_READERS: tuple[tuple[Any, Callable[[StateReader, Any], None]], ...] = (
    (STATELESS_TYPES, lambda reader, it: None),
    (
        (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType),
        StateReader._of_running,
    ),
    (contextvars.ContextVar, lambda reader, it: reader._push(it.get(None))),
    (types.ModuleType, StateReader._of_module),
    (type, StateReader._of_class),
    (types.FunctionType, StateReader._of_function),
    ((staticmethod, classmethod), lambda reader, it: reader._push(it.__func__)),
    (property, lambda reader, it: reader._push(it.fget, it.fset, it.fdel)),
    (types.MethodType, lambda reader, it: reader._push(it.__self__, it.__func__)),
    (types.BuiltinFunctionType, lambda reader, it: reader._push(it.__self__)),
    (
        functools.partial,
        lambda reader, it: reader._push(it.func, it.args, it.keywords, vars(it)),
    ),
    (functools._lru_cache_wrapper, StateReader._of_cache),
    (np.ndarray, StateReader._of_array),
    ((np.generic, itertools.count), lambda reader, it: reader._mark(repr(it))),
    (np.random.SeedSequence, lambda reader, it: reader._mark(repr(it.state))),
    (GENERATOR_TYPES, StateReader._of_reduced),
)


def is_state(key: str, value: Any) -> bool:
    """Whether a name of a class or module may be the env's: not Python's own."""
    dunder = key.startswith("__") and key.endswith("__")
    return key != "_abc_impl" and (not dunder or isinstance(value, FUNCTION_TYPES))


def _results_of(cache: Any) -> list[tuple[Any, Any]]:
    """Key, result: of a dict, or of the links of a bounded cache, which come so."""
    parts = gc.get_referents(cache)
    tables = [one for one in parts if type(one) is dict and one is not vars(cache)]
    entries = [entry for table in tables for entry in table.items()]
    if cache.cache_info().maxsize is None:
        return entries
    keys = {id(key) for key, _ in entries}
    return [pair for pair in itertools.pairwise(parts) if id(pair[0]) in keys]


def _dict_of(value: Any) -> dict[str, Any] | None:
    try:  # past the class's own __getattribute__, which may do anything
        local = isinstance(value, threading.local)
        inside = (getattr if local else object.__getattribute__)(value, "__dict__")
    except AttributeError:
        return None
    return dict(inside) if isinstance(inside, dict) else None


def _slots_of(value: Any) -> Iterator[tuple[str, Any]]:
    for kind in type(value).__mro__:
        for name, member in list(vars(kind).items()):
            if isinstance(member, types.MemberDescriptorType):
                with suppress(AttributeError):  # it is empty
                    yield name, member.__get__(value)
