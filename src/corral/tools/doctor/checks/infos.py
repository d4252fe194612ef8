"""How much of its infos has to be sent with every step, and what that costs."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.engine.pool import Pool
from corral.tools.doctor.driver import EpisodeDriver
from corral.tools.doctor.finding import Finding, ok, problem, warning
from corral.tools.doctor.subject import Subject

MOMENTS = 20
LARGE_INFO_BYTES = 1 << 10
"""Bytes of an info, pickled, from which on it is worth a race."""
RACE_ROUNDS = 5
ROUND_SECONDS = 0.15
WORTHWHILE_GAIN = 1.1
"""Times the steps without infos, in every round but one."""
SLOTS = 2


@dataclass(frozen=True, slots=True)
class InfoFigures:
    """What the infos of steps were like."""

    size: int
    """Bytes of the largest, pickled."""
    keys: int
    odd: tuple[str, ...]
    """Keys whose values are not numbers nor arrays of numbers."""
    trouble: str = ""
    """Why one could not be pickled."""


def measure(factory: Callable[[], Any], seed: int) -> InfoFigures:
    """Look at some."""
    driver = EpisodeDriver(factory, seed)
    size, keys, odd, trouble = 0, 0, dict[str, None](), ""
    for moment in driver.play(MOMENTS):
        if moment.what.startswith("reset") or not isinstance(moment.info, dict):
            continue
        leaves = dict(_leaves(moment.info, ""))
        keys = max(keys, len(leaves))
        odd |= {path: None for path, plain in leaves.items() if not plain}
        try:
            size = max(size, len(pickle.dumps(moment.info)))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            trouble = f"{type(error).__name__}: {error}"
    driver.close()
    return InfoFigures(size, keys, tuple(odd), trouble)


def _leaves(info: dict[Any, Any], path: str) -> Iterator[tuple[str, bool]]:
    for key, value in info.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict):
            yield from _leaves(value, name)
        else:
            plain = isinstance(value, (bool, int, float, np.generic, np.ndarray))
            yield name, plain and np.asarray(value).dtype.kind in "fiub"


def measure_gain(factory: Callable[[], Any], seed: int, shares: bool) -> float:
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
    space = pool.spec.action_space
    actions = [space.sample() for _ in range(pool.num_envs)]
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < ROUND_SECONDS or not count:
        step = pool.step(actions)
        step.infos.to_vector(len(step))  # as a caller would see them
        count += 1
    return count / (time.perf_counter() - began)


def examine(subject: Subject) -> Iterator[Finding]:
    """Their size; a race where they are large."""
    infos: InfoFigures = subject.ask(measure, subject.seed)
    if infos.trouble:
        yield problem(
            f"an info cannot be pickled: {infos.trouble}",
            "leave such entries out, or request the others: infos=[keys]",
        )
        return
    data = {"bytes": infos.size, "keys": infos.keys, "odd": list(infos.odd)[:20]}
    text = f"{infos.keys} entries, {infos.size:,} bytes when pickled"
    if infos.odd:
        more = ", …" * (len(infos.odd) > 1)
        text += f"; {len(infos.odd)} without a number ({infos.odd[0]}{more})"
    if infos.size < LARGE_INFO_BYTES or subject.profile.kind != "gymnasium":
        yield ok(text, data=data)
        return
    gain = subject.ask(measure_gain, subject.seed, subject.shares)
    data["gain"] = gain
    without = f'with infos="none" {gain:.2f} times the steps'
    if gain < WORTHWHILE_GAIN:
        yield ok(f"{text}; {without}", data=data)
        return
    yield warning(
        f"{text}, sent with every step",
        'infos="final", "none" or a list of the keys you read',
        without,
        {"infos": "final"},
        data,
    )
