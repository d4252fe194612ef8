"""How fast one env would have been: the same policy, one env, no other beside it."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from corral.engine.pool import Pool
from corral.rollouts.collector import Collector
from corral.train.run.parts import Parts, env_factory

MEASURED_SECONDS = 0.4
MEASURED_ROWS = 16


@dataclass(frozen=True, slots=True)
class SpeedComparison:
    """A run against one env at a time."""

    one: float
    """Env steps per second that one env collects."""
    collecting: float
    """The same of the run, while it collected."""
    whole: float
    """How many times faster collecting and learning were together."""

    def __str__(self) -> str:
        return (
            f"Collecting ran at {self.collecting:,.0f} steps/s, "
            f"{self.collecting / self.one:.1f}× one env at a time "
            f"({self.one:,.0f} steps/s); learning included, the run was "
            f"{self.whole:.1f}× as fast."
        )


def compare(
    parts: Parts, steps: int, collecting: float, learning: float
) -> SpeedComparison:
    """Measure one env, and hold the run's seconds against it."""
    one = one_env(parts)
    alone = steps / one + learning
    return SpeedComparison(one, steps / collecting, alone / (collecting + learning))


def one_env(parts: Parts) -> float:
    """Steps per second of one env, with the policy deciding for it alone."""
    factory = env_factory(parts.config)
    with Pool(factory, 1, backend="serial", seed=0, infos="final") as pool:
        collector = Collector(pool, parts.learner.single_policy())
        collector.collect(MEASURED_ROWS)
        steps, began = 0, perf_counter()
        while (seconds := perf_counter() - began) < MEASURED_SECONDS:
            collector.collect(MEASURED_ROWS)
            steps += MEASURED_ROWS
    return steps / seconds
