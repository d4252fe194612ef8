"""Drive every route once with one controller: costs, and traces of some routes.

with open_pool(controller, model, num_envs=8) as pool:
    costs = drive(pool, controller, paths)
    traces = trace(pool, controller, paths[:5])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from corral.core import Decision, EnvSpec, Generators, Policy, Step
from corral.engine.pool import Pool
from corral.engine.worker.context import this_worker
from corral.errors import OptionError
from corral.rollouts.actor import ForwardingPolicy
from corral.rollouts.episodic import Episode, run_episodes
from corral.rollouts.number_format import score
from corral.train.run.directory import find
from corral.zoo.tinyphysics import (
    PID,
    Costs,
    Model,
    make_tinyphysics,
    make_tinyphysics_batched,
)
from corral.zoo.tinyphysics.route import CONTROL_START, COST_END, check_routes
from corral.zoo.tinyphysics.views import VIEWS, seen_kwargs

STEPS = COST_END - CONTROL_START
SAMPLES = 5
Floats = NDArray[np.float64]


class Trace(NamedTuple):
    """A drive of one route; arrays of one row per step."""

    path: str
    costs: Costs
    target: Floats
    actual: Floats
    steer: Floats


def check(model: str | None, paths: Sequence[str]) -> None:
    """Read the model and all routes, so that errors come before the first drive."""
    Model(model)
    check_routes(paths)


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
    """Open a pool of cars with one session of the model in each worker."""
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
    """Make cars with the model of their worker."""
    return make(model=this_worker().resource, **options)


def drive(
    pool: Pool,
    policy: Policy,
    paths: Sequence[str],
    tell: Callable[[], None] = lambda: None,
) -> dict[str, Costs]:
    """Path -> costs; `tell` is called once per route, while they are driven."""
    tasks = [{"route": path} for path in paths]
    episodes = _episodes(pool, ProgressPolicy(policy, tell), tasks)
    return {episode.info["route"]: _costs(episode) for episode in episodes}


def trace(pool: Pool, policy: Policy, paths: Sequence[str]) -> list[Trace]:
    """Drive these routes, and record targets, lateral accelerations and steers."""
    tasks = [{"route": path, "trace": True} for path in paths]
    return [
        Trace(episode.info["route"], _costs(episode), *episode.info["trace"].T)
        for episode in _episodes(pool, policy, tasks)
    ]


def mean_of(costs: Mapping[str, Costs]) -> Costs:
    """The mean costs of all routes."""
    return Costs(*(float(one) for one in np.mean(list(costs.values()), axis=0)))


def mean_text(costs: Mapping[str, Costs]) -> str:
    """The mean total cost and its standard deviation over the routes."""
    deviation = np.std([cost.total for cost in costs.values()])
    return score(mean_of(costs).total, float(deviation))


def samples_of(costs: Mapping[str, Costs], count: int = SAMPLES) -> list[str]:
    """The route with the lowest cost, the highest, and some evenly between."""
    ranked = sorted(costs, key=lambda path: costs[path].total)
    places = np.linspace(0, len(ranked) - 1, min(count, len(ranked)))
    return [ranked[round(place)] for place in places]


class ProgressPolicy(ForwardingPolicy):
    """A policy that calls `tell` whenever it has acted for the steps of one route."""

    def __init__(self, policy: Policy, tell: Callable[[], None]) -> None:
        super().__init__(policy)
        self._tell = tell
        self._left = STEPS

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Act as the wrapped policy."""
        self._left -= len(step)
        while self._left <= 0:
            self._left += STEPS
            self._tell()
        return super().act(step, carry, rng)


def _episodes(pool: Pool, policy: Policy, tasks: Sequence[Any]) -> list[Episode]:
    # Wait for all slots: they take equally long, and a batch is one model call.
    return run_episodes(pool, policy, tasks=tasks, rows=False, min_slots=pool.num_envs)


def _costs(episode: Episode) -> Costs:
    return Costs(**{key: float(c) for key, c in episode.info["episode_cost"].items()})


PID_NAME = "pid"


@dataclass(frozen=True, slots=True)
class Controller:
    """A policy, and the functions that make its envs."""

    name: str
    policy_for: Callable[[EnvSpec], Policy]
    make: Callable[..., Any] = make_tinyphysics
    make_batched: Callable[..., Any] = make_tinyphysics_batched
    env_kwargs: dict[str, Any] = field(default_factory=dict)


def controller_of(name: str, checkpoint: str = "best") -> Controller:
    """The controller `pid`, or that of a run's directory or checkpoint."""
    if name == PID_NAME:
        return Controller("PID", lambda spec: PID(), env_kwargs={"dtype": "float64"})
    path = Path(name)
    directory = find(path)
    # Imported here: a PID needs neither torch nor pydantic.
    from corral.train.run.loaded_run import load_policy
    from corral.train.run.signed_config import read

    config = read(directory)
    if config.env not in VIEWS:
        raise OptionError(
            f"{path} is a run of {config.env}, not of tinyphysics; evaluate it with: "
            f"corral eval {path}"
        )
    view = VIEWS[config.env]
    return Controller(
        name,
        partial(load_policy, path, which=checkpoint),
        view.make,
        view.make_batched,
        env_kwargs=seen_kwargs(config.env_kwargs),
    )
