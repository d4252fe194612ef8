"""Runners and races of the benchmark scripts, and the machine they ran on."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import cycle, islice
from typing import Any, Protocol

from gymnasium.vector import VectorEnv

from corral.engine.executors.assign import usable_cores
from corral.errors import CorralError
from corral.tools.bench.measure import Rates, draw_actions, take_turns


class Runner(Protocol):
    """One way of doing the same work, which can be closed."""

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
    rates: dict[str, list[float]] = {name: [] for name in runners}

    def note(name: str, rate: float) -> None:
        rates[name].append(rate)
        on_turn(name)

    def stop(name: str, error: CorralError) -> None:
        raise error

    take_turns(
        runners,
        rounds=rounds,
        turn_seconds=turn_seconds,
        on_turn=note,
        on_fault=stop,
    )
    return {name: Rates(tuple(values)) for name, values in rates.items()}


def machine() -> str:
    """The words that belong beside every number."""
    return (
        f"{usable_cores()} cores, Python {platform.python_version()}, "
        f"Gymnasium {version('gymnasium')}"
    )
