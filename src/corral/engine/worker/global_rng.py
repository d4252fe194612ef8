"""The global generators of a process, and how their states are exchanged.

A Mersenne Twister is 2.5 kB at a known address, so `random` and `numpy.random` are
exchanged by plain memory copies. The addresses are proved on scratch generators
first; where the proof fails (another interpreter, another layout) getstate/setstate
do the same exchange, slower. torch is exchanged through its own get_state/set_state.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from typing import Any, Protocol

import numpy as np

from corral.engine.worker.seeds import seed_numpy, seed_python, torch_seed

_WORDS = 624
_TWISTER_BYTES = 4 * _WORDS + 4


class GlobalGenerator(Protocol):
    """One global generator; its state is a value that only it understands."""

    def read(self) -> Any:
        """A copy of the live state."""

    def swap(self, state: Any) -> Any:
        """Install a state, and return the one that was live."""

    def seed(self, seed: int) -> None:
        """Seed the live state."""


def python_generator() -> GlobalGenerator:
    """`random`, the quickest way that works here."""
    return _PythonByMemory() if _python_proved() else _PythonByState()


def numpy_generator() -> GlobalGenerator:
    """`numpy.random`, the quickest way that works here."""
    return _NumpyByMemory() if _numpy_proved() else _NumpyByState()


def fresh(generator: GlobalGenerator, seed: int) -> Any:
    """The state a seed gives; the live one is left as it was."""
    before = generator.read()
    generator.seed(seed)
    return generator.swap(before)


class _PythonByState:
    """`random`, through its public functions."""

    def read(self) -> Any:
        return random.getstate()

    def swap(self, state: Any) -> Any:
        before = random.getstate()
        random.setstate(state)
        return before

    def seed(self, seed: int) -> None:
        seed_python(seed)


class _PythonByMemory:
    """`random`, by copying the memory of its hidden Random object."""

    def __init__(self) -> None:
        self._instance: random.Random = random._inst
        self._twister = _python_twister(self._instance)

    def read(self) -> Any:
        return self._twister.tobytes(), self._instance.gauss_next  # type: ignore[attr-defined]

    def swap(self, state: Any) -> Any:
        twister, instance = self._twister, self._instance
        before = twister.tobytes(), instance.gauss_next  # type: ignore[attr-defined]
        twister[:], instance.gauss_next = state  # type: ignore[attr-defined]
        return before

    def seed(self, seed: int) -> None:
        seed_python(seed)


class _NumpyByState:
    """`numpy.random`, through its public functions."""

    def read(self) -> Any:
        return np.random.get_state()

    def swap(self, state: Any) -> Any:
        before = np.random.get_state()
        np.random.set_state(state)
        return before

    def seed(self, seed: int) -> None:
        seed_numpy(seed)


class _NumpyByMemory:
    """`numpy.random`, by copying the memory of its hidden RandomState."""

    def __init__(self) -> None:
        self._instance: Any = np.random.mtrand._rand
        # Kept alive: the address is good for as long as this object lives.
        self._bit_generator: Any = self._instance._bit_generator
        self._twister = _numpy_twister(self._instance)
        self._gauss = _numpy_gauss(self._instance)

    def read(self) -> Any:
        return self._twister.tobytes(), self._gauss.tobytes()

    def swap(self, state: Any) -> Any:
        twister, gauss = self._twister, self._gauss
        before = twister.tobytes(), gauss.tobytes()
        twister[:], gauss[:] = state
        return before

    def seed(self, seed: int) -> None:
        seed_numpy(seed)


class TorchGenerator:
    """torch's CPU generator."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def read(self) -> Any:
        return self._generator.get_state()

    def swap(self, state: Any) -> Any:
        before = self._generator.get_state()
        self._generator.set_state(state)
        return before

    def seed(self, seed: int) -> None:
        self._generator.manual_seed(torch_seed(seed))


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _python_twister(instance: random.Random) -> memoryview:
    """The index and words of a Random: the C fields that follow the object's head."""
    return _memory(id(instance) + object.__basicsize__, _TWISTER_BYTES)


def _numpy_twister(instance: Any) -> memoryview:
    """The words and position of a RandomState's MT19937."""
    return _memory(instance._bit_generator.ctypes.state_address, _TWISTER_BYTES)


def _numpy_gauss(instance: Any) -> memoryview:
    """`int has_gauss; double gauss`, which lie somewhere inside a RandomState."""
    scratch = np.random.RandomState(1)
    scratch.standard_normal()
    cached = struct.pack("d", scratch.get_state(legacy=False)["gauss"])
    offset = bytes(_memory(id(scratch), _size(scratch))).index(cached) - 8
    return _memory(id(instance) + offset, 16)


def _size(thing: object) -> int:
    return type(thing).__basicsize__


def _python_proved() -> bool:
    """Whether a Random's memory is what `_python_twister` takes it for."""
    one, other = random.Random(1), random.Random(2)
    room = _size(one) - object.__basicsize__
    if sys.implementation.name != "cpython" or room < _TWISTER_BYTES:
        return False
    if not hasattr(getattr(random, "_inst", None), "gauss_next"):
        return False
    one.random()
    *words, index = one.getstate()[1]
    if _python_twister(one) != struct.pack(f"i{_WORDS}I", index, *words):
        return False
    _python_twister(other)[:] = _python_twister(one)
    return other.getstate() == one.getstate()


def _numpy_proved() -> bool:
    """Whether a RandomState's memory is what the two functions above take it for."""
    if sys.implementation.name != "cpython":
        return False
    try:
        hidden = np.random.mtrand._rand
        one, other = np.random.RandomState(1), np.random.RandomState(2)
        if type(hidden) is not np.random.RandomState:
            return False
        if type(hidden._bit_generator) is not np.random.MT19937:
            return False
        one.standard_normal()
        state: Any = one.get_state()
        expected = state[1].tobytes() + struct.pack("i", state[2])
        if _numpy_twister(one) != expected:
            return False
        _numpy_twister(other)[:] = _numpy_twister(one)
        _numpy_gauss(other)[:] = _numpy_gauss(one)
        return _numpy_alike(one, other)
    except (AttributeError, ValueError):
        return False


def _numpy_alike(one: Any, other: Any) -> bool:
    """Same words and cached normal, and each draw turns the flag over."""
    if not all(map(np.array_equal, one.get_state(), other.get_state())):
        return False
    for flag in (1, 0, 1, 0):
        if _gauss_flag(one) != flag or _gauss_flag(other) != flag:
            return False
        if one.standard_normal() != other.standard_normal():
            return False
    return True


def _gauss_flag(instance: Any) -> int:
    return int(struct.unpack_from("i", _numpy_gauss(instance))[0])
