"""Global generators per slot: `isolate_rng=True`.

Some environments draw from `random`, `numpy.random` or `torch` instead of from a
generator of their own. Several of them in one process then share one stream, and what
an env draws depends on which env was stepped before it. `IsolatedRng` gives every slot
its own streams and exchanges the generators' states when a slot is entered or left.

Guarantees: a slot draws the same numbers whether it runs alone or among others, in any
order, whatever code outside the slots draws meanwhile, and from its first number on.
Code outside finds its own states as it left them. This also holds for an env that keeps
`numpy.random.mtrand._rand`, or a function such as `from random import random`.

The exchange does not depend on which generators an env uses: its first draw may come at
any time and must come from the slot's own state. torch takes part once it is imported.

Only public functions are used:

    random         getstate, setstate of its generator: 625 integers each, which is
                   most of the cost; and `gauss_next`, the normal for the next call
    numpy.random   set_bit_generator: one bit generator per slot; the normal that
                   numpy keeps for the next call is carried along (`MT19937`)
    torch          get_state, set_state of the default generator

The outside states come back when a slot is left. A worker process runs no code of the
user's outside its slots, so it leaves a slot's states in place until another slot is
entered; a shard in the caller's process does so while it steps all its slots
(`with isolation:`). `benchmarks/isolation_cost.py` measures both.

Assumes: one slot is inside at a time (under threads, pass a lock). Not covered: CUDA
generators; numbers drawn while a module is imported, which come from the streams of the
slot that imports it first.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.engine.worker.seeds import generator_seeds

_NUMPY: Any = np.random  # its type stubs leave out `set_bit_generator`
# The functions of `random` are methods of this object. Those of its base class return
# and take the words alone, a microsecond sooner.
_RANDOM: Any = random.getstate.__self__  # type: ignore[attr-defined]
_words_of_random: Any = super(random.Random, _RANDOM)
_get_words, _set_words = _words_of_random.getstate, _words_of_random.setstate


class IsolatedRng:
    """Each slot's own `random`, `numpy.random` and torch global state.

    Enter it around an env's constructor, reset and step:

    >>> import random
    >>> isolation = IsolatedRng(lambda slot: 100 + slot)
    >>> with isolation.of(3):
    ...     alone = random.random()
    >>> isolation.forget(3)
    >>> with isolation.of(3):
    ...     alone == random.random()
    True

    Args:
        seed_of_slot: returns the seed of a slot's generators, when it first enters.
        lock: held while a slot is inside; needed under threads.
        lingers: whether a slot's states stay in place until others are needed.
    """

    def __init__(
        self,
        seed_of_slot: Callable[[int], int],
        lock: AbstractContextManager[Any] | None = None,
        lingers: bool = False,
    ) -> None:
        self._seed_of_slot = seed_of_slot
        self._lock = lock or nullcontext()
        self._always_lingers = self._lingers = lingers
        self._torch: Any = None
        # Whether imports of torch are watched for, by `find_spec`.
        self._watching = False
        self._slots: dict[int, _States] = {}
        self._outside = self._live = _States(self)
        self._inside: _States | None = None
        if type(_NUMPY.get_bit_generator()) is np.random.MT19937:
            # The live stream continues in a bit generator that is quick to exchange.
            state: Any = np.random.get_state(legacy=False)
            _NUMPY.set_bit_generator(MT19937(0))
            np.random.set_state(state)

    def of(self, slot: int) -> AbstractContextManager[None]:
        """Return a context in which the slot's states are live."""
        if slot not in self._slots:
            self._slots[slot] = _States(self, slot)
        return self._slots[slot]

    def forget(self, slot: int) -> None:
        """Seed the slot again when it is next entered, as after a restart."""
        assert self._inside is None or self._inside.slot != slot, "the slot is inside"
        self._slots.pop(slot, None)

    def __enter__(self) -> None:
        """Enter slots in a row: the outside states come back at the end."""
        # With a lock other threads wait for their turn.
        self._lingers = isinstance(self._lock, nullcontext)

    def __exit__(self, *exception: object) -> None:
        self._lingers = self._always_lingers
        if not self._lingers:
            self.restore_outside()

    def restore_outside(self) -> None:
        """Make the outside states live, also between two slots in a row."""
        if self._live is not self._outside:
            self._exchange(self._outside)
        self._stop_watching()

    def enter(self, states: _States) -> None:
        """Make a slot's states live, until `leave`."""
        self._lock.__enter__()
        try:
            assert self._inside is None, "another slot is inside"
            if self._torch is None and not self._watching:
                self._meet_torch()
                if self._torch is None:
                    self._watching = True
                    sys.meta_path.insert(0, self)
            if states is not self._live:
                self._exchange(states)
            self._inside = states
        except BaseException:
            self._stop_watching()
            self._lock.__exit__(None, None, None)
            raise

    def leave(self) -> None:
        """Make the outside states live again, unless the slot's linger."""
        self._inside = None
        try:
            if not self._lingers:
                self.restore_outside()
        finally:
            self._lock.__exit__(None, None, None)

    def _exchange(self, states: _States) -> None:
        """Save the states that are live, and make others live."""
        if states.python is None and states is not self._outside:
            self._seed(states)
        self._live.python = _get_words(), _RANDOM.gauss_next
        bits = _NUMPY.get_bit_generator()
        if type(bits) is MT19937:  # else an env or the user has set another
            bits.brief = True
        # The state is that of the cached normal.
        self._live.numpy = bits, np.random.get_state(legacy=False)
        words, _RANDOM.gauss_next = states.python
        _set_words(words)
        bits, normal = states.numpy
        _NUMPY.set_bit_generator(bits)
        if normal["has_gauss"]:
            np.random.set_state(normal)
        if self._torch is not None:
            self._live.torch = self._torch.get_state()
            if states.torch is None:
                states.torch = self._fresh_torch(states)
            self._torch.set_state(states.torch)
        self._live = states

    def _seed(self, states: _States) -> None:
        python, numpy, _ = generator_seeds(self._seed_of_slot(states.slot))
        _, *states.python = random.Random(python).getstate()
        twister = MT19937(0)
        np.random.RandomState(twister).seed(numpy)
        states.numpy = twister, {"has_gauss": 0}

    def _fresh_torch(self, states: _States) -> Any:
        *_, seed = generator_seeds(self._seed_of_slot(states.slot))
        return sys.modules["torch"].Generator().manual_seed(seed).get_state()

    def _stop_watching(self) -> None:
        if self._watching:
            self._watching = False
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find torch as if this finder were not there; meet it when it is run.

        Gym registries import an env's module inside its first constructor. That module
        may import torch and draw from it at once.
        """
        if name != "torch":
            return None
        self._stop_watching()
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_meet(module: Any) -> None:
                execute(module)
                self._meet_torch()

            loader.exec_module = execute_and_meet
        return spec

    def _meet_torch(self) -> None:
        """Include torch from now on, if it was imported."""
        torch: Any = sys.modules.get("torch")
        # While torch is being imported it is listed and has no generator yet.
        if self._torch is not None or not hasattr(torch, "default_generator"):
            return
        self._torch = torch.default_generator
        self._outside.torch = self._torch.get_state()
        if self._live is not self._outside:  # a slot imported it and may draw next
            self._torch.set_state(self._fresh_torch(self._live))


@dataclass(slots=True, eq=False)
class _States:
    """The generators' states of one slot, or of outside, while they are not live."""

    isolation: IsolatedRng
    slot: int = -1
    python: Any = None
    numpy: Any = None
    torch: Any = None

    def __enter__(self) -> None:
        self.isolation.enter(self)

    def __exit__(self, *exception: object) -> None:
        self.isolation.leave()


class MT19937(np.random.MT19937):
    """numpy's Mersenne Twister, whose `state` can be left out once.

    `set_bit_generator` drops the normal that `numpy.random` has cached. Only
    `get_state` and `set_state` reach that, and they copy 624 words of the bit
    generator's state as well, which takes 80 µs. With `brief` they copy the
    cached normal alone, in 1 µs. It has the name of numpy's class, since numpy compares
    names when it sets a state.

    Attributes:
        brief: Whether the next reading of `state` leaves the words out.
    """

    brief = False

    @property
    def state(self) -> Any:
        """The state of the stream, as of any MT19937."""
        if self.brief:
            self.brief = False
            return {"bit_generator": "MT19937", "state": None}
        return super().state

    @state.setter
    def state(self, value: Any) -> None:
        if value["state"] is not None:
            np.random.MT19937.state.__set__(self, value)  # type: ignore[attr-defined]
