"""What environments tell beside their observations, in every shape that a dict has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class Keeper:
    """What an environment keeps and goes on changing, and shows in its infos."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Clear what is kept: the same objects, as after a reset."""
        if not hasattr(self, "log"):
            self.log: list[Any] = []
            self.seen: set[int] = set()
            self.notes: dict[str, Any] = {}
            self.marks = np.zeros(3, np.int64)
        self.log.clear()
        self.seen.clear()
        self.notes.clear()
        self.marks[:] = 0

    def add(self, state: int) -> None:
        """Change all of them."""
        self.log.append(state % 100)
        self.seen.add(state % 50)
        self.notes[f"note {state % 4}"] = [state % 9]
        self.marks[state % 3] += 1

    def show(self) -> dict[str, Any]:
        """The objects themselves, as careless environments give them away."""
        return {
            "log": self.log,
            "seen": self.seen,
            "pair": (self.log, len(self.log)),
            "notes": self.notes,
            "marks": self.marks,
            "deep": {"log": self.log, "list": [self.notes, self.log]},
        }


def _none(_: int, __: Keeper) -> dict[str, Any]:
    return {}


def _scalars(state: int, _: Keeper) -> dict[str, Any]:
    return {
        "whole": state % 1000,
        "real": state / 7,
        "flag": state % 2 == 0,
        "single": np.float32(state % 97),
        "short": np.int16(state % 97),
        "truth": np.bool_(state % 3 == 0),
    }


def _arrays(state: int, _: Keeper) -> dict[str, Any]:
    return {
        "array": np.arange(3) + state % 10,
        "matrix": np.full((2, 2), state % 13, np.float32),
        "nothing": np.zeros((0, 2), np.uint8),
        "flags": np.array([state % 2 == 0, True]),
    }


def _nested(state: int, _: Keeper) -> dict[str, Any]:
    return {
        "a": {"b": {"c": state % 11}, "d": float(state % 5)},
        "e": {"array": np.full(2, state % 3)},
    }


def _comes_and_goes(state: int, _: Keeper) -> dict[str, Any]:
    info: dict[str, Any] = {"always": 1.5}
    if state % 2:
        info["sometimes"] = state % 21
    if state % 3 == 0:
        info["seldom"] = {"word": "x" * (state % 4), "number": state % 6}
    if state % 5 == 0:
        info["array"] = np.arange(state % 4)
    return info


def _changes_type(state: int, _: Keeper) -> dict[str, Any]:
    values = (state % 8, float(state % 8), "word", None, np.arange(2), [1, 2])
    return {"value": values[state % len(values)]}


def _words(state: int, _: Keeper) -> dict[str, Any]:
    return {
        "word": f"{state % 1000:x}",
        "nobody": None,
        "bytes": bytes([state % 256]),
        "tuple": (1, "two", (state % 3,)),
        "big": 2**70 + state,
    }


def _kept(_: int, keeper: Keeper) -> dict[str, Any]:
    return keeper.show()


def _all(state: int, keeper: Keeper) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for number, style in enumerate((_scalars, _arrays, _nested, _words, _kept)):
        if state >> number & 1:
            told.update(style(state, keeper))
    return told


STYLES: dict[str, Callable[[int, Keeper], dict[str, Any]]] = {
    "none": _none,
    "scalars": _scalars,
    "arrays": _arrays,
    "nested": _nested,
    "comes and goes": _comes_and_goes,
    "changes type": _changes_type,
    "words": _words,
    "kept": _kept,
    "all": _all,
}
