"""The speed of one env alone with the same policy, to compare a run with."""

from __future__ import annotations

from time import perf_counter

from corral.engine.pool import Pool
from corral.rollouts.collector import Collector
from corral.train.run.parts import Parts, env_factory

MEASURED_SECONDS = 0.4
MEASURED_ROWS = 16


def compared(parts: Parts, steps: int, collecting: float, learning: float) -> str:
    """Measure one env, and compare it with a run's steps and seconds, in words."""
    one = one_env(parts)
    speed = steps / collecting
    whole = (steps / one + learning) / (collecting + learning)
    return (
        f"Collecting ran at {speed:,.0f} steps/s, {speed / one:.1f}× one env at a time "
        f"({one:,.0f} steps/s); learning included, the run was {whole:.1f}× as fast."
    )


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
