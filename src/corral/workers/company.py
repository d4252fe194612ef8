"""Whether an env may have company: another one like it in the same process.

    alone    first: reset, steps            twice, to see that it repeats itself
    beside   first and second, by turns     the first has to do the same once more

A second one that cannot even be built is built again, alone and beside the first.

An env that does not repeat itself cannot be judged so, and is taken to be fine. So is
one that is slow, or that may not be reset before an episode is over: looking must cost
next to nothing, and never be the reason why something fails.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

STEPS = 16
MOST_SECONDS = 0.05
"""That one such trajectory may take; slower envs are not looked at."""
BUILDS = 3
"""After the first that failed."""
MOST_BUILDING = 0.3
"""Seconds after which one of them is enough."""


class Guest(Protocol):
    """One of the two; see `workers.probe`."""

    @property
    def actions(self) -> Sequence[Any]: ...

    @property
    def reset_time(self) -> float: ...

    def reset(self, seed: int) -> Any: ...

    def step(self, action: Any) -> Any: ...


def repeats(first: Guest, step_time: float) -> bytes | None:
    """What it does alone, if it does the same twice in little time."""
    if first.reset_time + STEPS * step_time > MOST_SECONDS:
        return None
    try:
        once = _trajectory(first)
        return once if once == _trajectory(first) else None
    except Exception:
        return None


class Pair(Protocol):
    """Both; each call begins anew, with neither of them built."""

    def build_second(self) -> None: ...

    def build_both(self) -> None: ...


def unbearable(pair: Pair, error: Exception) -> str:
    """Why the second cannot be built beside the first; "" if it was chance.

    Then both of them are built. It is chance unless the second one can be built alone,
    and beside the first not once: four times, or twice where that takes long.
    """
    ending, works_alone = time.monotonic() + MOST_BUILDING, True
    for _ in range(BUILDS):
        works_alone &= _works(pair.build_second) or _works(pair.build_second)
        try:
            pair.build_both()
            return ""
        except Exception as again:
            error = again
        if time.monotonic() > ending:
            break
    # What fails alone as well says so itself, in a process of its own; unless it is
    # what the first two left behind in this one.
    text = f"{type(error).__name__}: {error!s:.120}"
    if works_alone:
        return f"the second one in a process cannot be built and reset ({text})"
    return f"one in a process after others cannot be built and reset ({text})"


def _works(build: Callable[[], None]) -> bool:
    try:
        build()
    except Exception:
        return False
    return True


def disturbed(first: Guest, second: Guest, alone: bytes) -> str:
    """How the company of the second changes what the first does; "" if it does not.

    Twice, since an env may also fail, or do something else, now and then.
    """
    return _beside(first, second, alone) and _beside(first, second, alone)


def _beside(first: Guest, second: Guest, alone: bytes) -> str:
    try:
        second.reset(1)
        beside = _trajectory(first, _others(second))
    except Exception as error:
        return (
            f"side by side in one process an env fails with {type(error).__name__}: "
            f"{error!s:.120}"
        )
    if beside == alone:
        return ""
    return "an env does something else when another one runs in its process"


def _trajectory(first: Guest, others: Iterator[None] | None = None) -> bytes | None:
    """All that the env says in a few steps; None where that cannot be compared."""
    seen = [_said(first.reset(0))]
    for action in first.actions[:STEPS]:
        outcome = first.step(action)
        seen.append(_said(outcome[:4]))
        if others is not None:
            next(others)
        if outcome[2] or outcome[3]:
            break
    return None if None in seen else b"".join(one for one in seen if one is not None)


def _others(second: Guest) -> Iterator[None]:
    """Steps of the other env, as long as anybody asks."""
    for action in reversed(second.actions):
        _, _, terminated, truncated, _ = second.step(action)
        if terminated or truncated:
            second.reset(1)
        yield


def _said(values: Any) -> bytes | None:
    """Bytes of it at this moment: the env may write over it later."""
    try:
        return pickle.dumps(values)
    except Exception:
        return None
