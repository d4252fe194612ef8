"""Seeds for episodes, and a life of its own for each slot's global generators.

Some environments draw from `random`, `numpy.random` or `torch` instead of from a
generator of their own. Several of them in one process then share one stream, and
what an env sees depends on who stepped before it. `Isolation` gives every slot its
own stream, by exchanging the generators' states whenever a slot is entered or left.

Guarantees: a slot draws the same numbers whether it runs alone or among others, in
any order, whatever outside code draws meanwhile, and from its very first number on;
outside code finds its own states as it left them.

There is no guessing about which generators an env uses: a first use may come at any
time, and must already find the slot's own state. Instead the exchange is made cheap.
A Mersenne Twister is 2.5 kB at a known address, so `random` and `numpy.random` are
exchanged by plain memory copies. The addresses are proved on scratch generators
first; where the proof fails (another interpreter, another layout) getstate/setstate
do the same exchange, slower. torch is exchanged through its own get_state/set_state,
only where torch has been imported.

Cost of one enter and leave, measured (Python 3.11, numpy 2.4, torch 2.13, one 2-core
machine): 2.0 µs for `random` and `numpy.random` together, 160 µs for the
two where the proof fails, and 2.3 µs more where torch is imported. A slot's
first entry seeds its generators: some 25 µs, once.

Assumes: one slot is inside at a time (under threads, give a lock). Not covered: CUDA
generators; `numpy.random.set_bit_generator`; numbers drawn at the import of a module,
which fall to the slot that imports it first.
"""

from __future__ import annotations

import ctypes
import importlib.util
import operator
import random
import struct
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np

_WORDS = 624
_TWISTER_BYTES = 4 * _WORDS + 4


def episode_seed(root: int, *parts: int) -> int:
    """A seed below 2**63 for these integers, the same one for ever.

    >>> episode_seed(0, 3, 7) == episode_seed(0, 3, 7) != episode_seed(0, 37)
    True
    """
    # Hexadecimal text: integers of any size and sign, and no two lists alike.
    text = ",".join([f"{operator.index(part):x}" for part in (root, *parts)])
    digest = blake2b(text.encode(), digest_size=8, person=b"corral").digest()
    return int.from_bytes(digest, "little") >> 1


def seed_globals(seed: int) -> None:
    """Seed `random`, `numpy.random` and, where it is imported, torch on all devices."""
    _seed_python(seed)
    _seed_numpy(seed)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(_torch_seed(seed))


# One number must not seed two of these: `random` and `numpy.random` are the same
# algorithm, and would draw the same stream.
def _seed_python(seed: int) -> None:
    random.seed(episode_seed(seed, 0))


def _seed_numpy(seed: int) -> None:
    number = episode_seed(seed, 1)
    np.random.seed([number & 0xFFFFFFFF, number >> 32])


def _torch_seed(seed: int) -> int:
    return episode_seed(seed, 2)


class _Generator(Protocol):
    """One global generator; its state is a value that only it understands."""

    def read(self) -> Any:
        """A copy of the live state."""

    def swap(self, state: Any) -> Any:
        """Install a state, and return the one that was live."""

    def seed(self, seed: int) -> None:
        """Seed the live state."""


class _PythonByState:
    """`random`, through its public functions."""

    def read(self) -> Any:
        return random.getstate()

    def swap(self, state: Any) -> Any:
        before = random.getstate()
        random.setstate(state)
        return before

    def seed(self, seed: int) -> None:
        _seed_python(seed)


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
        _seed_python(seed)


class _NumpyByState:
    """`numpy.random`, through its public functions."""

    def read(self) -> Any:
        return np.random.get_state()

    def swap(self, state: Any) -> Any:
        before = np.random.get_state()
        np.random.set_state(state)
        return before

    def seed(self, seed: int) -> None:
        _seed_numpy(seed)


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
        _seed_numpy(seed)


class _Torch:
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
        self._generator.manual_seed(_torch_seed(seed))


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


class Isolation:
    """Each slot's own `random`, `numpy.random` and torch global state.

    Enter it around an env's constructor, reset and step:

    >>> isolation = Isolation(lambda slot: episode_seed(0, slot))
    >>> with isolation.of(3):
    ...     alone = random.random()
    >>> isolation.forget(3)
    >>> with isolation.of(3):
    ...     alone == random.random()
    True

    Args:
        seed_of_slot: what a slot's generators are seeded from when it first enters.
        lock: held while a slot is inside; needed under threads.
    """

    def __init__(
        self,
        seed_of_slot: Callable[[int], int],
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._seed_of_slot = seed_of_slot
        self._lock = lock
        self._python: _Generator = (
            _PythonByMemory() if _python_proved() else _PythonByState()
        )
        self._numpy: _Generator = (
            _NumpyByMemory() if _numpy_proved() else _NumpyByState()
        )
        self._torch: _Torch | None = None
        self._arrival = _TorchArrival(self)
        self._turns: dict[int, _Turn] = {}
        self._inside: _Turn | None = None

    def of(self, slot: int) -> AbstractContextManager[None]:
        """The slot's states are live within this context."""
        turn = self._turns.get(slot)
        if turn is None:
            turn = self._turns[slot] = _Turn(self, slot)
        return turn

    def forget(self, slot: int) -> None:
        """Seed the slot anew when it is next entered, as after a restart."""
        assert self._inside is None or self._inside.slot != slot, "the slot is inside"
        self._turns.pop(slot, None)

    def _enter(self, turn: _Turn) -> None:
        if self._lock is not None:
            self._lock.__enter__()
        try:
            assert self._inside is None, "another slot is inside"
            if self._torch is None and not self._meet_torch():
                self._arrival.watch()
            if turn.python is None or (turn.torch is None and self._torch is not None):
                self._seed(turn)
            turn.python = self._python.swap(turn.python)
            turn.numpy = self._numpy.swap(turn.numpy)
            if self._torch is not None:
                turn.torch = self._torch.swap(turn.torch)
            self._inside = turn
        except BaseException:
            self._arrival.stop()
            self._unlock()
            raise

    def _leave(self, turn: _Turn) -> None:
        self._inside = None
        try:
            turn.python = self._python.swap(turn.python)
            turn.numpy = self._numpy.swap(turn.numpy)
            if self._torch is not None:
                turn.torch = self._torch.swap(turn.torch)
            else:
                self._arrival.stop()
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.__exit__(None, None, None)

    def _seed(self, turn: _Turn) -> None:
        """Give the slot a fresh state of each generator it has not met."""
        seed = self._seed_of_slot(turn.slot)
        if turn.python is None:
            turn.python = _fresh(self._python, seed)
            turn.numpy = _fresh(self._numpy, seed)
        if turn.torch is None and self._torch is not None:
            turn.torch = _fresh(self._torch, seed)

    def _meet_torch(self) -> bool:
        """Take torch's generator in, once torch has been imported."""
        torch = sys.modules.get("torch")
        # While torch is being imported it is listed, and has no generator yet.
        if torch is None or not hasattr(torch, "default_generator"):
            return False
        self._torch = _Torch(torch.default_generator)
        return True

    def _torch_arrived(self) -> None:
        """A slot imported torch: what it draws next must already be its own."""
        turn = self._inside
        if turn is None or self._torch is not None or not self._meet_torch():
            return
        assert self._torch is not None
        self._seed(turn)
        turn.torch = self._torch.swap(turn.torch)


class _Turn:
    """One slot's states while it is outside, those from outside while it is inside."""

    __slots__ = ("_isolation", "numpy", "python", "slot", "torch")

    def __init__(self, isolation: Isolation, slot: int) -> None:
        self._isolation = isolation
        self.slot = slot
        self.python: Any = None
        self.numpy: Any = None
        self.torch: Any = None

    def __enter__(self) -> None:
        self._isolation._enter(self)

    def __exit__(self, *exception: object) -> None:
        self._isolation._leave(self)


def _fresh(generator: _Generator, seed: int) -> Any:
    """The state a seed gives; the live one is left as it was."""
    before = generator.read()
    generator.seed(seed)
    return generator.swap(before)


class _TorchArrival:
    """Tells an Isolation of the moment torch is imported while a slot is inside.

    Gym registries import an env's module inside its first constructor, which may
    import torch and at once draw from it.
    """

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation

    def watch(self) -> None:
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        if self in sys.meta_path:  # no longer, once it has seen torch
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find torch as if this finder were not there, and watch it being run."""
        if name != "torch":
            return None
        self.stop()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def execute_and_tell(module: Any) -> None:
            execute(module)
            self._isolation._torch_arrived()

        loader.exec_module = execute_and_tell
