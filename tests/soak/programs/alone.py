"""What a process has beside its environments, so that each can be given its own.

Environments in processes of their own share nothing. The loop that a program is held
against has them all in one process, and exchanges around every call what they would
not have shared.
"""

from __future__ import annotations

import random
from types import TracebackType
from typing import Any

import numpy as np

from corral.engine.worker.seeds import seed_globals
from tests.soak.programs import env

_COUNTERS = ("built", "resets", "ends")


class ProcessState:
    """Class and module attributes, and global generators; those of now, until used."""

    def __init__(self, seed: int | None = None) -> None:
        before = _taken()
        clear()
        if seed is not None:
            seed_globals(seed)
        self._own = _taken()
        self._others: Any = None
        _put(before)

    def __enter__(self) -> ProcessState:
        self._others = _taken()
        _put(self._own)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._own = _taken()
        _put(self._others)


def _taken() -> Any:
    counters = [getattr(env.Patchwork, name) for name in _COUNTERS]
    shared = list(env.Patchwork.past), dict(env.TALLY)
    return counters, shared, random.getstate(), np.random.get_state()


def _put(state: Any) -> None:
    counters, (past, tally), python, numpy = state
    for name, value in zip(_COUNTERS, counters, strict=True):
        setattr(env.Patchwork, name, value)
    env.Patchwork.past[:] = past
    env.TALLY.update(tally)
    random.setstate(python)
    np.random.set_state(numpy)


def clear() -> None:
    """As in a process that has just started."""
    for name in _COUNTERS:
        setattr(env.Patchwork, name, 0)
    env.Patchwork.past.clear()
    env.TALLY["calls"] = 0
