"""What it returns: observations against their space, buffers used again, infos."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium import spaces as kinds

from corral.engine.pool import Pool
from corral.engine.worker.compared_values import difference
from corral.tools.doctor.checks.cost import pace
from corral.tools.doctor.driver import EpisodeDriver, spaces_of
from corral.tools.doctor.report import Finding, note, ok, problem, warning
from corral.tools.doctor.subject import Subject

# Spaces -------------------------------------------------------------------------------

# Path and kind of a misfit, and what is said about it.
Misfits = Iterator[tuple[str, Finding]]
UNCHANGED = "Corral passes it on unchanged"


def measure_spaces(
    factory: Callable[[], Any], seed: int, moments: int
) -> list[Finding]:
    """Every kind of misfit, at its first moment."""
    found: dict[str, Finding] = {}
    with EpisodeDriver(factory, seed) as driver:
        spaces = spaces_of(driver.env, "observation")
        for moment in driver.play(moments):
            values = moment.obs if driver.several else {"": moment.obs}
            for agent, value in values.items():
                path = f"obs[{agent!r}]" if driver.several else "obs"
                for key, misfit in _look(spaces[agent], value, path, moment.what):
                    found.setdefault(key, misfit)
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
        yield from _look_at_box(space, np.asarray(value), path, f"{what}: {path}")
    elif not space.contains(value):
        text = f"{what}: {path} is {value!r:.80}, which {space} does not contain"
        yield f"{path} value", problem(text, "return a value of the space")


def _look_at_box(space: kinds.Box, array: Any, path: str, at: str) -> Misfits:
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
        text = f"{at} holds NaN at {np.argwhere(np.isnan(array))[0].tolist()}"
        yield f"{path} nan", note(text, UNCHANGED)
    with np.errstate(invalid="ignore"):
        outside = np.argwhere((array < space.low) | (array > space.high))
    if len(outside):
        place = outside[0].tolist()
        value, low, high = (one[tuple(place)] for one in (array, space.low, space.high))
        text = f"{at}{place} is {value:.6g}, its space says {low:g} to {high:g}"
        remedy = f"{UNCHANGED}; correct the bounds if you scale by them"
        yield f"{path} bounds", note(text, remedy)


def check_spaces(subject: Subject) -> Iterator[Finding]:
    """What did not fit; or that all did."""
    steps = subject.profile.steps
    misfits = subject.ask(measure_spaces, subject.seed, steps)
    yield from misfits
    if not misfits:
        yield ok(f"{steps} observations had the shape, dtype and bounds of their space")


# Buffers ------------------------------------------------------------------------------
#
# An env may return the same array again and again: an observation that is kept then
# changes with the next step. Corral copies observations; lists, replay buffers and
# wrappers that keep them may not.

BUFFER_MOMENTS = 30


def measure_buffers(factory: Callable[[], Any], seed: int) -> str:
    """The first observation that a later call changed; "" if none was."""
    changed = ""
    kept: list[tuple[str, Any, Any]] = []
    with EpisodeDriver(factory, seed) as driver:
        for moment in driver.play(BUFFER_MOMENTS):
            for what, given, remembered in kept:
                if place := difference("obs", given, remembered):
                    text = f"{moment.what} changed what was returned before"
                    changed = changed or f"{text} ({what}: {place})"
            kept = [*kept[-2:], (moment.what, moment.obs, copy.deepcopy(moment.obs))]
    return changed


def check_buffers(subject: Subject) -> Finding:
    """Whether observations stay what they were."""
    changed = subject.ask(measure_buffers, subject.seed)
    if not changed:
        return ok("later steps do not change an observation that was returned")
    return warning(
        f"reuses its observation buffer: {changed}",
        "return a copy. Corral's batches are copies already; a loop of your own that "
        "keeps observations needs obs.copy()",
        "a copy of the observation did not change",
    )


# Infos --------------------------------------------------------------------------------

INFO_MOMENTS = 20
# Bytes of an info, pickled, from which on it is worth a race.
LARGE_INFO_BYTES = 1 << 10
RACE_ROUNDS = 5
ROUND_SECONDS = 0.15
# Times the steps without infos, in every round but one.
WORTHWHILE_GAIN = 1.1
SLOTS = 2


@dataclass(frozen=True, slots=True)
class InfoFigures:
    """What the infos of steps were like.

    Attributes:
        size: Bytes of the largest, pickled.
        odd: Keys whose values are not numbers nor arrays of numbers.
        trouble: Why one could not be pickled.
    """

    size: int
    keys: int
    odd: tuple[str, ...]
    trouble: str = ""


def measure_infos(factory: Callable[[], Any], seed: int) -> InfoFigures:
    """Look at some."""
    size, keys, odd, trouble = 0, 0, dict[str, None](), ""
    with EpisodeDriver(factory, seed) as driver:
        for moment in driver.play(INFO_MOMENTS):
            if moment.what.startswith("reset") or not isinstance(moment.info, dict):
                continue
            leaves = dict(_leaves(moment.info, ""))
            keys = max(keys, len(leaves))
            odd |= {path: None for path, plain in leaves.items() if not plain}
            try:
                size = max(size, len(pickle.dumps(moment.info)))
            except (pickle.PicklingError, TypeError, AttributeError) as error:
                trouble = f"{type(error).__name__}: {error}"
    return InfoFigures(size, keys, tuple(odd), trouble)


def _leaves(info: dict[Any, Any], path: str) -> Iterator[tuple[str, bool]]:
    for key, value in info.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{key}.")
        else:
            plain = isinstance(value, (bool, int, float, np.generic, np.ndarray))
            yield f"{path}{key}", plain and np.asarray(value).dtype.kind in "fiub"


def measure_info_gain(factory: Callable[[], Any], seed: int, shares: bool) -> float:
    """Steps per second without infos over those with; the second lowest round's."""
    place = {"workers": 1, "isolation": "shared"} if shares else {"isolation": "slot"}
    options: dict[str, Any] = {"backend": "process", "seed": seed, **place}
    with (
        Pool(factory, SLOTS, infos="all", **options) as with_infos,
        Pool(factory, SLOTS, infos="none", **options) as without,
    ):
        with_infos.reset()
        without.reset()
        ratios = [_pace(without) / _pace(with_infos) for _ in range(RACE_ROUNDS)]
    return sorted(ratios)[1]


def _pace(pool: Pool) -> float:
    actions = [pool.spec.action_space.sample() for _ in range(pool.num_envs)]

    def advance() -> None:
        step = pool.step(actions)
        step.infos.to_vector(len(step))  # as a caller would see them

    return pace(advance, ROUND_SECONDS)


def check_info_pickling(subject: Subject) -> Iterator[Finding]:
    """Whether they can be sent to the caller."""
    infos: InfoFigures = subject.ask(measure_infos, subject.seed)
    if infos.trouble:
        yield _not_pickled(infos)


def _not_pickled(infos: InfoFigures) -> Finding:
    return problem(
        f"an info cannot be pickled: {infos.trouble}",
        "leave such entries out, or request the others: infos=[keys]",
    )


def check_infos(subject: Subject) -> Finding:
    """Their size; a race where they are large."""
    infos: InfoFigures = subject.ask(measure_infos, subject.seed)
    if infos.trouble:
        return _not_pickled(infos)
    data = {"bytes": infos.size, "keys": infos.keys, "odd": list(infos.odd)[:20]}
    text = f"{infos.keys} entries, {infos.size:,} bytes when pickled"
    if infos.odd:
        more = ", …" * (len(infos.odd) > 1)
        text += f"; {len(infos.odd)} without a number ({infos.odd[0]}{more})"
    if infos.size < LARGE_INFO_BYTES or subject.profile.kind != "gymnasium":
        return ok(text, data=data)
    gain = subject.ask(measure_info_gain, subject.seed, subject.shares is not False)
    data["gain"] = gain
    without = f'with infos="none" {gain:.2f} times the steps'
    if gain < WORTHWHILE_GAIN:
        return ok(f"{text}; {without}", data=data)
    return warning(
        f"{text}, sent with every step",
        'infos="final", "none" or a list of the keys you read',
        without,
        {"infos": "final"},
        data,
    )
