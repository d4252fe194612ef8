"""Places in which a module can keep what all of its envs share."""

import array
import collections
import contextvars
import ctypes
import functools
import itertools
import random
import threading
import types

import gymnasium
import numpy as np

from tests.stateful_envs import Plain


class Holding(Plain):
    """All of them have what this module has."""


class Turned(Holding):
    """What one of them may become."""

    count = 0


class Other:
    """A class beside the env's."""

    count = 0
    current = None

    def __init__(self):
        self.count = 0
        self.deep = Slotted()

    def add(self):
        self.count += 1


class Slotted:
    __slots__ = ("parts",)

    def __init__(self):
        self.parts = [{"x": [0]}]


class Meta(type):
    count = 0


class Made(metaclass=Meta):
    pass


def forever():
    count = 0
    while True:
        count += 1
        yield count


def closed():
    count = 0

    def add():
        nonlocal count
        count += 1

    return add


def with_default(held=[0], *, named={"x": 0}):  # noqa: B006
    held[0] += 1


def with_named(held=(), *, named={"x": 0}):  # noqa: B006
    named["x"] += 1


def with_attribute():
    with_attribute.count = getattr(with_attribute, "count", 0) + 1


@functools.cache
def cached():
    return [0]


@functools.lru_cache(maxsize=4)
def bounded():
    return [0]


@functools.cache
def pure(number):
    return [number]


HELD = Other()
METHOD = Other().add
APPEND = [].append
PART = functools.partial(list.append, [], 1)
PROXY = types.MappingProxyType({"a": [0]})
OBJECTS = np.array([[0], None], object)
NUMBERS = array.array("i", [0])
CELL = ctypes.c_int(0)
MANY = np.zeros(3_000_000)
LONG = [0] * 200_000
NEGATIVE = [-1] * 100
SPACE = gymnasium.spaces.Discrete(1000, seed=1)
GENERATOR = np.random.default_rng(0)
OWN = random.Random(0)
YIELDING = forever()
CYCLE = itertools.cycle([1, 2, 3])
CLOSED = closed()
VARIABLE = contextvars.ContextVar("VARIABLE", default=0)
LOCAL = threading.local()
LEVELS = [Other(), Other()]
NAMES = types.SimpleNamespace(count=0)
QUEUE = collections.deque([0] * 1000)


def _set(holder, key, value):
    holder[key] = value


CHANGES = {
    "another class": lambda: setattr(Other, "count", Other.count + 1),
    "an instance": HELD.add,
    "a nested object with slots": lambda: HELD.deep.parts[0]["x"].append(1),
    "a singleton": lambda: setattr(Other, "current", Other()),
    "which one is current": lambda: setattr(Other, "current", LEVELS[1]),
    "a bound method's object": METHOD,
    "a builtin method's object": lambda: APPEND(1),
    "a partial's arguments": PART,
    "a mapping proxy": lambda: PROXY["a"].append(1),
    "an array of objects": lambda: OBJECTS[0].append(1),
    "an array.array": lambda: _set(NUMBERS, 0, NUMBERS[0] + 1),
    "a ctypes value": lambda: setattr(CELL, "value", CELL.value + 1),
    "a big array": lambda: _set(MANY, 1_234_567, MANY[1_234_567] + 1),
    "a long list": lambda: _set(LONG, 123_456, LONG[123_456] + 1),
    "numbers of equal hash": lambda: _set(NEGATIVE, 50, -2),
    "a long queue": lambda: _set(QUEUE, 500, QUEUE[500] + 1),
    "a space's generator": SPACE.sample,
    "a numpy generator": GENERATOR.random,
    "a Python generator of numbers": OWN.random,
    "a generator object": lambda: next(YIELDING),
    "an iterator": lambda: next(CYCLE),
    "a closure": CLOSED,
    "a default argument": with_default,
    "a keyword's default": with_named,
    "a function's attribute": with_attribute,
    "a cached result": lambda: cached().append(1),
    "a cached result of a bounded cache": lambda: bounded().append(1),
    "a metaclass": lambda: setattr(Meta, "count", Meta.count + 1),
    "a context variable": lambda: VARIABLE.set(VARIABLE.get() + 1),
    "a thread's own": lambda: setattr(LOCAL, "count", 1),
    "a namespace": lambda: setattr(NAMES, "count", NAMES.count + 1),
}
