"""Where a run's policy acts: in the caller, or beside the envs in the workers.

With `act_in: workers` or `auto`, rows of the policy do not depend on their batch, to
the last bit. So the numbers of a training on the CPU depend neither on the number of
workers nor on what was measured, and a run can be resumed elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

from corral.engine.pool import Pool
from corral.errors import FactoryError, OptionError
from corral.rollouts.collector import Collector
from corral.train.recipes.config import RunConfig

# Each place collects rows for so long, in turns, and so often.
MEASURED_SECONDS = 0.15
TURNS = 2
MOST_ROWS = 128


def acting_policy(config: RunConfig, policy: Any) -> Any:
    """The policy that collects: an exact one, if it may act in the workers."""
    if config.act_in == "caller" or not hasattr(policy, "exact"):
        return policy
    return policy.exact()


def check_own_collector(config: RunConfig) -> None:
    """Refuse act_in: workers, or a cluster, for a learner that collects by itself."""
    if config.cluster is not None:
        raise OptionError(
            f"cluster is set, and {config.learner} collects by itself, in this "
            "process: leave cluster out, or set learner to ppo"
        )
    if config.act_in == "workers":
        raise OptionError(
            f"act_in is 'workers', and {config.learner} collects by itself, in the "
            "caller: set act_in: caller, or learner to ppo"
        )


def place_of_acting(config: RunConfig, pool: Pool, policy: Any) -> str:
    """Return "caller" or "workers", by measurement if asked; say why in the layout."""
    if config.act_in == "caller":
        return "caller"
    if config.mode != "sync":
        raise OptionError(
            f"mode is {config.mode!r}, which is for a policy in the caller: set mode: "
            "sync, or act_in: caller"
        )
    if config.act_in == "workers":
        return "workers"
    place, reason = _measured(pool, policy)
    pool.layout = replace(pool.layout, acting=f"the policy acts in the {reason}")
    return place


def _measured(pool: Pool, policy: Any) -> tuple[str, str]:
    """The faster place, and why."""
    if pool.layout.backend == "serial":
        return "caller", "caller, where the envs are"
    try:
        speed = {place: 0.0 for place in ("caller", "workers")}
        for _ in range(TURNS):  # in turns, as the machine may be busy with other things
            for place in speed:
                speed[place] = max(speed[place], _speed(pool, policy, place))
    except FactoryError as error:
        return "caller", f"caller: {error}"
    place = max(speed, key=lambda one: speed[one])
    caller, workers = (f"{speed[one]:,.0f}" for one in ("caller", "workers"))
    reason = f"(measured: {caller} steps/s in the caller, {workers} in the workers)"
    return place, f"{place} {reason}"


def _speed(pool: Pool, policy: Any, place: str) -> float:
    """Steps per second; the run's own collector then starts from its first seed."""
    seed, collector = pool.seed, Collector(pool, policy, act_in=place)
    collector.collect(1)  # the copies of the policy are made once
    rows, done, began = 1, 0, perf_counter()
    while (seconds := perf_counter() - began) < MEASURED_SECONDS:
        collector.collect(rows)
        done += rows
        rows = min(2 * rows, MOST_ROWS)
    assert pool.seed == seed, "collecting starts from the pool's own seed"
    return done * pool.num_envs / seconds
