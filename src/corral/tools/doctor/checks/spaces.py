"""Are observations what their space says: shape, dtype, bounds?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium import spaces as kinds

from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding, note, ok, problem
from corral.tools.doctor.subject import Subject

Misfits = Iterator[tuple[str, Finding]]
"""Path and kind of a misfit, and what is said about it."""


def measure(factory: Callable[[], Any], seed: int, moments: int) -> list[Finding]:
    """Every kind of misfit, at its first moment."""
    driver = EpisodeDriver(factory, seed)
    found: dict[str, Finding] = {}
    spaces = driver.env_driver.observation_spaces
    for moment in driver.play(moments):
        several = driver.env_driver.several
        values = moment.obs if several else {"": moment.obs}
        for agent, value in values.items():
            path = f"obs[{agent!r}]" if several else "obs"
            for key, misfit in _look(spaces[agent], value, path, moment.what):
                found.setdefault(key, misfit)
    driver.close()
    return list(found.values())


def _look(space: Space[Any], value: Any, path: str, what: str) -> Misfits:
    if isinstance(space, kinds.Dict) and isinstance(value, dict):
        if space.spaces.keys() != value.keys():
            text = f"{path} has keys {list(value)}, its space {list(space.spaces)}"
            yield f"{path} keys", problem(f"{what}: {text}", "make the keys agree")
            return
        for key, part in space.spaces.items():
            yield from _look(part, value[key], f"{path}[{key!r}]", what)
    elif isinstance(space, kinds.Tuple) and isinstance(value, (tuple, list)):
        for place, (part, item) in enumerate(zip(space.spaces, value, strict=False)):
            yield from _look(part, item, f"{path}[{place}]", what)
    elif isinstance(space, kinds.Box):
        yield from _look_at_box(space, np.asarray(value), path, what)
    elif not space.contains(value):
        text = f"{what}: {path} is {value!r:.80}, which {space} does not contain"
        yield f"{path} value", problem(text, "return a value of the space")


def _look_at_box(space: kinds.Box, array: Any, path: str, what: str) -> Misfits:
    at = f"{what}: {path}"
    if array.shape != space.shape:
        text = f"{at} has shape {array.shape}, its space says {space.shape}"
        yield f"{path} shape", problem(text, "make the shapes agree")
        return
    if array.dtype != space.dtype:
        text = f"{at} is {array.dtype}, its space says {space.dtype}"
        if np.can_cast(array.dtype, space.dtype, "same_kind"):
            remedy = "Corral stores it as the space says; to keep it, declare its dtype"
            yield f"{path} dtype", note(text, remedy)
        else:
            remedy = "return the space's dtype: Corral refuses a cast that loses values"
            yield f"{path} dtype", problem(text, remedy)
    if array.dtype.kind == "f" and np.isnan(array).any():
        text = f"{at} holds NaN at {_first(np.isnan(array))}"
        yield f"{path} nan", note(text, "Corral passes it on unchanged")
    with np.errstate(invalid="ignore"):
        outside = (array < space.low) | (array > space.high)
    if outside.any():
        place = _first(outside)
        value, low, high = (one[tuple(place)] for one in (array, space.low, space.high))
        text = f"{at}{place} is {value:.6g}, its space says {low:g} to {high:g}"
        remedy = (
            "Corral passes it on unchanged; correct the bounds if you scale by them"
        )
        yield f"{path} bounds", note(text, remedy)


def _first(where: Any) -> list[int]:
    return [int(axis[0]) for axis in np.nonzero(where)]


def examine(subject: Subject) -> Iterator[Finding]:
    """What did not fit; or that all did."""
    steps = subject.profile.steps
    misfits = subject.ask(measure, subject.seed, steps)
    yield from misfits
    if not misfits:
        yield ok(f"{steps} observations had the shape, dtype and bounds of their space")
