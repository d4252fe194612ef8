"""Fair races: every candidate takes a turn in every round, all of them stay built.

    round 1   A ── B ── C        a machine that slows down or speeds up on its way
    round 2   C ── B ── A        through the rounds does so to every candidate
    round 3   A ── B ── C

Ratios are taken within a round, where both sides saw the same machine, and the
median over the rounds is what gets reported.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import cycle, islice
from typing import Any, Protocol

from gymnasium import Space
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from corral.engine.executors.assign import usable_cores
from corral.errors import CorralError

ACTION_BATCHES = 64


class Runner(Protocol):
    """One way of doing the same work.

    The race asks for `seconds = runner.run(batches)` and counts
    `runner.slots * batches / seconds`.
    """

    slots: int
    """Environment steps in one batch."""

    def run(self, batches: int) -> float:
        """Step so many batches; return the seconds it took."""

    def close(self) -> None:
        """Release whatever the runner holds."""


class VectorRunner:
    """Steps a vector env with actions drawn beforehand."""

    def __init__(self, envs: VectorEnv[Any, Any, Any], seed: int = 0) -> None:
        self.envs = envs
        self.slots = envs.num_envs
        self.actions = draw_actions(envs.single_action_space, self.slots, seed)
        envs.reset(seed=seed)

    def run(self, batches: int) -> float:
        """Step so many batches; return the seconds it took."""
        step = self.envs.step
        actions = list(islice(cycle(self.actions), batches))
        began = time.perf_counter()
        for action in actions:
            step(action)
        return time.perf_counter() - began

    def close(self) -> None:
        """Close the vector env."""
        self.envs.close()


def draw_actions(space: Space[Any], slots: int, seed: int) -> list[Any]:
    """Batches of random actions, the same for every candidate with that many slots."""
    batched = batch_space(space, slots)
    batched.seed(seed)
    return [batched.sample() for _ in range(ACTION_BATCHES)]


@dataclass(frozen=True, slots=True)
class Rates:
    """Environment steps per second, one number per round."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle round."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a fraction of the median."""
        if len(self.rounds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return (high - low) / 2 / self.median

    def first(self, count: int) -> Rates:
        """The first so many rounds: what one that failed later can be held against."""
        return Rates(self.rounds[:count])

    def over(self, other: Rates) -> float:
        """How many times faster than `other`: the median of the rounds' ratios."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)


class Race:
    """Turns taken so far; what they showed can be read after any of them."""

    def __init__(
        self,
        runners: Mapping[str, Runner],
        *,
        turn_seconds: float,
        on_turn: Callable[[str], None] = lambda name: None,
        on_fault: Callable[[str, CorralError], None] | None = None,
    ) -> None:
        """Take runners that are built and ready to step.

        Args:
            runners: By name.
            turn_seconds: How long a turn should take, from a trial run of each.
            on_turn: Called with the runner's name after each of its turns.
            on_fault: Called with the name of a runner that failed; it takes no more
                turns, the others go on. Without it the error ends the race.
        """
        self._runners = dict(runners)
        self._turn_seconds = turn_seconds
        self._on_turn = on_turn
        self._on_fault = on_fault
        self._batches: dict[str, int] = {}
        self._rates: dict[str, list[float]] = {name: [] for name in runners}

    def run(self, rounds: int) -> None:
        """Give every runner a trial, then so many turns."""
        for name in list(self._runners):
            self._guarded(name, self._try)
        for number in range(rounds):
            for name in in_turn(list(self._runners), number):
                self._guarded(name, self._turn)

    def _guarded(self, name: str, action: Callable[[str], None]) -> None:
        try:
            action(name)
        except CorralError as error:
            if self._on_fault is None:
                raise
            del self._runners[name]
            self._on_fault(name, error)

    def _try(self, name: str) -> None:
        self._batches[name] = batches_for(self._runners[name], self._turn_seconds)

    def _turn(self, name: str) -> None:
        runner, batches = self._runners[name], self._batches[name]
        seconds = runner.run(batches)
        self._rates[name].append(runner.slots * batches / seconds)
        self._on_turn(name)

    def rates(self) -> dict[str, Rates]:
        """By name; of those who failed, the rounds before."""
        return {name: Rates(tuple(values)) for name, values in self._rates.items()}


def race(
    runners: Mapping[str, Runner],
    *,
    rounds: int,
    turn_seconds: float,
    on_turn: Callable[[str], None] = lambda name: None,
) -> dict[str, Rates]:
    """Alternate the runners round by round, each for about `turn_seconds` a turn.

    Args:
        runners: By name; all of them built and ready to step.
        rounds: How many turns each of them gets.
        turn_seconds: How long a turn should take, from a trial run of each.
        on_turn: Called with the runner's name after each of its turns.
    """
    running = Race(runners, turn_seconds=turn_seconds, on_turn=on_turn)
    running.run(rounds)
    return running.rates()


def in_turn(names: Sequence[str], number: int) -> Sequence[str]:
    """The order of round `number`: forth, then back."""
    return names if number % 2 == 0 else names[::-1]


def batches_for(runner: Runner, turn_seconds: float) -> int:
    """How many batches fill a turn; the trial doubles as the warm-up."""
    batches = 1
    while (seconds := _pace(runner, batches, turn_seconds / 4)) < turn_seconds / 4:
        batches *= 2
    return max(1, round(batches * turn_seconds / seconds))


def _pace(runner: Runner, batches: int, enough: float) -> float:
    """Seconds of so many batches, by a second run if the first seems long enough.

    A first step may compile, load, or lose its core; turns made as short as that says
    would measure the clock.
    """
    seconds = runner.run(batches)
    return seconds if seconds < enough else min(seconds, runner.run(batches))


def machine() -> str:
    """The words that belong beside every number."""
    return (
        f"{usable_cores()} cores, Python {platform.python_version()}, "
        f"Gymnasium {version('gymnasium')}"
    )
