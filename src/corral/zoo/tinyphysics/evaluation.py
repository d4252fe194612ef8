"""Every route once, by one controller: what each costs, and how some of them went.

with open_pool(controller, model, num_envs=8) as pool:
    costs = drive(pool, controller, paths)
    traces = trace(pool, controller, paths[:5])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, Generators, Policy, Step
from corral.engine.pool import Pool
from corral.engine.worker.context import this_worker
from corral.rollouts.episode import Episode
from corral.rollouts.episodic import run_episodes
from corral.zoo.tinyphysics import Costs, Model, load_route
from corral.zoo.tinyphysics.controller import Controller
from corral.zoo.tinyphysics.route import CONTROL_START, COST_END

STEPS = COST_END - CONTROL_START
SAMPLES = 5
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trace:
    """One route as it was driven; arrays of one row per step."""

    path: str
    costs: Costs
    target: Floats
    actual: Floats
    steer: Floats


def check(model: str | None, paths: Sequence[str]) -> None:
    """Read everything once: what is wrong is better known before it is driven."""
    Model(model)
    for path in paths:
        load_route(path)


def open_pool(
    controller: Controller,
    model: str | None,
    num_envs: int,
    *,
    backend: str = "auto",
    workers: int | None = None,
    batched: bool = False,
    **options: Any,
) -> Pool:
    """As many cars, and in each worker one session of the model."""
    make = controller.make_batched if batched else controller.make
    return Pool(
        partial(make_with_resource, make),
        num_envs,
        env_kwargs=controller.env_kwargs,
        backend=backend,
        workers=workers,
        batched=batched,
        seed=0,
        infos="final",
        per_worker=partial(Model, model),
        **options,
    )


def make_with_resource(make: Callable[..., Any], **options: Any) -> Any:
    """Cars with the model of their worker."""
    return make(model=this_worker().resource, **options)


def drive(
    pool: Pool,
    policy: Policy,
    paths: Sequence[str],
    tell: Callable[[], None] = lambda: None,
) -> dict[str, Costs]:
    """Path -> costs; `tell` is called as often as there are routes, on the way."""
    tasks = [{"route": path} for path in paths]
    episodes = _episodes(pool, ProgressPolicy(policy, tell), tasks)
    return {episode.info["route"]: _costs(episode) for episode in episodes}


def trace(pool: Pool, policy: Policy, paths: Sequence[str]) -> list[Trace]:
    """The same, and how it went."""
    tasks = [{"route": path, "trace": True} for path in paths]
    return [_trace(episode) for episode in _episodes(pool, policy, tasks)]


def mean_of(costs: Mapping[str, Costs]) -> Costs:
    """Of all routes."""
    return Costs(*(float(one) for one in np.mean(list(costs.values()), axis=0)))


def samples_of(costs: Mapping[str, Costs], count: int = SAMPLES) -> list[str]:
    """The cheapest route, the dearest, and some between, evenly spaced."""
    ranked = sorted(costs, key=lambda path: costs[path].total)
    places = np.linspace(0, len(ranked) - 1, min(count, len(ranked)))
    return [ranked[round(place)] for place in places]


class ProgressPolicy:
    """A policy that tells whenever it has decided as often as a route has steps."""

    def __init__(self, policy: Policy, tell: Callable[[], None]) -> None:
        self._policy = policy
        self._tell = tell
        self._left = STEPS

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Decide as the other policy does."""
        self._left -= len(step)
        while self._left <= 0:
            self._left += STEPS
            self._tell()
        return self._policy.act(step, carry, rng)

    def initial_carry(self, rows: int) -> Any:
        """As the other policy's."""
        initial = getattr(self._policy, "initial_carry", None)
        return None if initial is None else initial(rows)


def _episodes(pool: Pool, policy: Policy, tasks: Sequence[Any]) -> list[Episode]:
    # All that are under way: they take equally long, and in a batch are one call.
    return run_episodes(pool, policy, tasks=tasks, rows=False, min_slots=pool.num_envs)


def _costs(episode: Episode) -> Costs:
    return Costs(**{key: float(c) for key, c in episode.info["episode_cost"].items()})


def _trace(episode: Episode) -> Trace:
    target, actual, steer = episode.info["trace"].T
    return Trace(episode.info["route"], _costs(episode), target, actual, steer)
