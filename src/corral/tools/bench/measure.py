"""Fair races: every candidate takes a turn in every round, all of them stay built.

    round 1   A ── B ── C        a machine that slows down or speeds up on its way
    round 2   C ── B ── A        through the rounds does so to every candidate
    round 3   A ── B ── C

Ratios are taken within a round, where both sides saw the same machine, and the
median over the rounds is what gets reported.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gymnasium import Space
from gymnasium.vector.utils import batch_space

from corral.errors import CorralError

ACTION_BATCHES = 64


class Runner(Protocol):
    """One way of doing the same work.

    Attributes:
        slots: Environment steps in one batch.
    """

    slots: int

    def run(self, batches: int) -> float:
        """Step so many batches; return the seconds it took."""


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

    def over(self, other: Rates) -> float:
        """How many times faster than `other`: the median of the rounds' ratios.

        In the rounds that both finished; there has to be one.
        """
        pairs = zip(self.rounds, other.rounds, strict=False)
        return statistics.median(ours / theirs for ours, theirs in pairs)


def take_turns(
    runners: Mapping[str, Runner],
    *,
    rounds: int,
    turn_seconds: float,
    on_turn: Callable[[str, float], object],
    on_fault: Callable[[str, CorralError], object],
) -> None:
    """Give every runner a trial, then so many turns.

    Args:
        runners: By name; built and ready to step.
        rounds: How many turns each of them gets.
        turn_seconds: How long a turn should take, from the trial of each.
        on_turn: Called with a name and its steps per second after each of its turns.
        on_fault: Called with a name and its error; it takes no more turns, the others
            continue.
    """
    running, batches = dict(runners), dict[str, int]()
    for number in range(rounds + 1):  # the first is the trial
        for name in in_turn(list(running), max(0, number - 1)):
            runner = running[name]
            try:
                if not number:
                    batches[name] = batches_for(runner, turn_seconds)
                    continue
                seconds = runner.run(batches[name])
            except CorralError as error:
                del running[name]
                on_fault(name, error)
            else:
                on_turn(name, runner.slots * batches[name] / seconds)


def in_turn(names: Sequence[str], number: int) -> Sequence[str]:
    """The order of round `number`: forth, then back."""
    return names if number % 2 == 0 else names[::-1]


def batches_for(runner: Runner, turn_seconds: float) -> int:
    """How many batches fill a turn; the trial doubles as the warm-up."""
    batches, enough = 1, turn_seconds / 4
    while (seconds := _pace(runner, batches, enough)) < enough:
        batches *= 2
    return max(1, round(batches * turn_seconds / seconds))


def _pace(runner: Runner, batches: int, enough: float) -> float:
    """Seconds of so many batches, by a second run if the first seems long enough.

    A first step may compile, load, or lose its core; turns made as short as that says
    would measure the clock.
    """
    seconds = runner.run(batches)
    return seconds if seconds < enough else min(seconds, runner.run(batches))


# A simulated policy: a fixed amount of computing between recv and send ----------------
#
# Not a loop that watches the clock: such a loop takes the same time with and without a
# core, and hides the time that it waits for one.

# Iterations of one calibration run, some milliseconds.
CALIBRATION_ITERATIONS = 20_000


def compute(iterations: int) -> int:
    """So much arithmetic."""
    value = 1
    for _ in range(iterations):
        value = (value * 1103515245 + 12345) & 0x7FFFFFFF
    return value


def iterations_for(seconds: float) -> int:
    """How many iterations take so long on this machine, measured now."""
    if seconds <= 0:
        return 0
    fastest = float("inf")  # the run with the least disturbance
    for _ in range(15):
        began = time.perf_counter()
        compute(CALIBRATION_ITERATIONS)
        fastest = min(fastest, time.perf_counter() - began)
    return max(1, round(CALIBRATION_ITERATIONS * seconds / fastest))
