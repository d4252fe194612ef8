"""The short race: CartPole-v1 against Gymnasium's own vector envs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import gymnasium

import corral
from corral.bench.measure import Rates, VectorRunner, race

ENV_ID = "CartPole-v1"
SIZES = (8, 64)
ROUNDS = 7
TURN_SECONDS = 0.3

CORRAL, ASYNC, SYNC = "Corral", "Gymnasium Async", "Gymnasium Sync"
CANDIDATES = (CORRAL, ASYNC, SYNC)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One race that was run."""

    slots: int
    rates: dict[str, Rates]
    layout: str
    """What Corral chose, and why."""


def run(slots: int, on_turn: Callable[[str], None], rounds: int = ROUNDS) -> Outcome:
    """Race `slots` CartPoles on Corral, Gymnasium Async and Gymnasium Sync."""
    with built(slots) as runners:
        rates = race(runners, rounds=rounds, turn_seconds=TURN_SECONDS, on_turn=on_turn)
        layout = describe(runners[CORRAL].envs)
    return Outcome(slots, rates, layout)


@contextmanager
def built(slots: int) -> Iterator[dict[str, VectorRunner]]:
    """All candidates, ready to step, closed at the end."""
    with ExitStack() as stack:

        def ready(envs: gymnasium.vector.VectorEnv) -> VectorRunner:
            stack.callback(envs.close)
            return VectorRunner(envs)

        factories = [make_cartpole] * slots
        # Async forks, so it comes first: fork before anyone starts threads.
        others = {
            ASYNC: ready(gymnasium.vector.AsyncVectorEnv(factories)),
            SYNC: ready(gymnasium.vector.SyncVectorEnv(factories)),
        }
        yield {CORRAL: ready(corral.make(ENV_ID, num_envs=slots)), **others}


def make_cartpole() -> gymnasium.Env:
    """One CartPole, as a user makes it."""
    return gymnasium.make(ENV_ID)


def describe(envs: gymnasium.vector.VectorEnv) -> str:
    """The layout's own words about what was chosen and why."""
    layout = getattr(envs, "layout", None)
    return str(getattr(layout, "reason", layout))
