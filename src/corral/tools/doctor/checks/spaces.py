"""Are observations what their space says: shape, dtype, bounds?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium import spaces as kinds

from corral.tools.doctor.contract import Check
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding, Severity
from corral.tools.doctor.subject import Subject


@dataclass(frozen=True, slots=True)
class SpaceMisfit:
    """One way in which a value was not of its space."""

    severity: Severity
    text: str
    remedy: str


Found = dict[tuple[str, str], SpaceMisfit]
"""By path and kind: the first of each."""


def measure(factory: Callable[[], Any], seed: int, moments: int) -> list[SpaceMisfit]:
    """Every kind of misfit, at its first moment."""
    driver = EpisodeDriver(factory, seed)
    found: Found = {}
    spaces = driver.env_driver.observation_spaces
    for moment in driver.play(moments):
        several = "" not in spaces
        values = moment.obs if several else {"": moment.obs}
        for agent, value in values.items():
            path = f"obs[{agent!r}]" if several else "obs"
            _look(spaces[agent], value, path, moment.what, found)
    driver.close()
    return list(found.values())


def _look(space: Space[Any], value: Any, path: str, what: str, found: Found) -> None:
    if isinstance(space, kinds.Dict) and isinstance(value, dict):
        if space.spaces.keys() != value.keys():
            text = f"{path} has keys {list(value)}, its space {list(space.spaces)}"
            _note(found, path, "keys", what, "problem", text, "make the keys agree")
            return
        for key, part in space.spaces.items():
            _look(part, value[key], f"{path}[{key!r}]", what, found)
    elif isinstance(space, kinds.Tuple) and isinstance(value, (tuple, list)):
        for place, (part, item) in enumerate(zip(space.spaces, value, strict=False)):
            _look(part, item, f"{path}[{place}]", what, found)
    elif isinstance(space, kinds.Box):
        _look_at_box(space, value, path, what, found)
    elif not space.contains(value):
        text = f"{path} is {value!r:.80}, which {space} does not contain"
        _note(
            found, path, "value", what, "problem", text, "return a value of the space"
        )


def _look_at_box(
    space: kinds.Box, value: Any, path: str, what: str, found: Found
) -> None:
    array = np.asarray(value)
    if array.shape != space.shape:
        text = f"{path} has shape {array.shape}, its space says {space.shape}"
        _note(found, path, "shape", what, "problem", text, "make the shapes agree")
        return
    if array.dtype != space.dtype:
        fits = np.can_cast(array.dtype, space.dtype, "same_kind")
        text = f"{path} is {array.dtype}, its space says {space.dtype}"
        remedy = (
            "it is stored in the space's dtype; declare the one you return to keep it"
            if fits
            else "it is refused, since that would lose more than precision; return "
            "the space's dtype"
        )
        severity: Severity = "note" if fits else "problem"
        _note(found, path, "dtype", what, severity, text, remedy)
    _look_at_bounds(space, array, path, what, found)


def _look_at_bounds(
    space: kinds.Box, array: Any, path: str, what: str, found: Found
) -> None:
    if array.dtype.kind == "f" and np.isnan(array).any():
        text = f"{path} holds NaN at {_first(np.isnan(array))}"
        _note(found, path, "nan", what, "note", text, "it is passed on as it is")
    with np.errstate(invalid="ignore"):
        outside = (array < space.low) | (array > space.high)
    if outside.any():
        place = _first(outside)
        at = tuple(place)
        low, high = space.low[at], space.high[at]
        text = f"{path}{place} is {array[at]:.6g}, its space says {low:g} to {high:g}"
        remedy = (
            "it is passed on as it is; declare bounds that hold if you scale by them"
        )
        _note(found, path, "bounds", what, "note", text, remedy)


def _first(where: Any) -> list[int]:
    return [int(axis[0]) for axis in np.nonzero(where)]


def _note(
    found: Found,
    path: str,
    kind: str,
    what: str,
    severity: Severity,
    text: str,
    remedy: str,
) -> None:
    found.setdefault((path, kind), SpaceMisfit(severity, f"{what}: {text}", remedy))


def examine(subject: Subject) -> Iterator[Finding]:
    """What did not fit; or that all did."""
    misfits = subject.ask(measure, subject.seed, subject.profile.steps)
    for misfit in misfits:
        yield Finding("spaces", misfit.severity, misfit.text, misfit.remedy)
    if not misfits:
        text = f"{subject.profile.steps} observations had the shape, dtype and bounds"
        yield Finding("spaces", "ok", f"{text} of their space")


CHECK = Check("spaces", examine)
