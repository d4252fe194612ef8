"""TinyPhysics: steer a car that a small language model simulates.

    corral train tinyphysics                              routes and model made here
    corral train tinyphysics --set data=DIR --set model=FILE

A policy is cloned from a PID controller, then PPO goes on from there. Routes are shared
out once: for training, for choosing the best checkpoint, and for the final evaluation
beside the PID controller.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt

from corral.core import Decision, Generators, Step
from corral.engine.pool import Pool
from corral.errors import OptionError
from corral.learners.cloning import clone
from corral.learners.ppo import PPO
from corral.learners.protocol import Rows
from corral.rollouts.collector import Collector
from corral.rollouts.evaluation import Evaluation
from corral.train.recipes.config import RunConfig, wants_of
from corral.train.run import parts as plain
from corral.train.run.checkpoint import Checkpoint
from corral.zoo.tinyphysics import PID, RouteOrder, evaluation, find_routes
from corral.zoo.tinyphysics.route import check_routes
from corral.zoo.tinyphysics.views import View, seen_kwargs, view_of


class Config(RunConfig):
    """The settings of the recipe."""

    data: str | None = None
    """directory of routes (default: generated ones)"""
    model: str | None = None
    """ONNX file (default: a small generated model)"""
    parallel: bool = True
    """false: one env after the other, in this process"""
    batched: bool = True
    """one call of the model for all cars of a worker"""
    validation_routes: PositiveInt = 15
    """number of routes that choose the best checkpoint (default: 15)"""
    test_routes: PositiveInt = 25
    """number of routes for the final evaluation (default: 25)"""
    clone_rows: PositiveInt = 12_800
    """rows of a PID controller to clone (default: 12800)"""
    clone_epochs: NonNegativeInt = 20
    """epochs of cloning; 0: begin with random weights (default: 20)"""


# Routes -------------------------------------------------------------------------------


class RouteSplit(NamedTuple):
    """Which routes are for what; none is for two things."""

    training: list[str]
    validation: list[str]
    test: list[str]

    @classmethod
    def of(cls, config: Config) -> RouteSplit:
        """Share the routes out, as the run's seed has it."""
        paths = find_routes(config.data)
        held_out = config.validation_routes + config.test_routes
        if len(paths) <= held_out:
            raise OptionError(
                f"there are {len(paths)} routes ({config.data or 'synthetic'}), and "
                f"{config.validation_routes} + {config.test_routes} of them are for "
                "validation and test: lower validation_routes and test_routes"
            )
        order = np.random.default_rng(config.seed).permutation(len(paths))
        mixed, tests = [paths[place] for place in order], config.test_routes
        return cls(mixed[held_out:], mixed[tests:held_out], mixed[:tests])


# Pools --------------------------------------------------------------------------------


def open_pool(
    config: Config, slots: int, backend: str, workers: int | None, **options: Any
) -> Pool:
    """So many cars, as the config has them."""
    if not config.parallel:
        backend, workers = "serial", None
    batched = config.batched and config.parallel
    asked = plain.pool_options(
        config,
        batched=batched,
        backend=backend,
        workers=workers,
        isolation="auto",
        isolate_rng=False,  # a car has its own generator, and a batch no slots apart
        memory_limit=None,
        **options,
    )
    view = view_of(config.env)
    make = view.make_batched if batched else view.make
    return Pool.with_options(make, slots, asked)


def _kwargs(config: Config, routes: list[str], **more: Any) -> dict[str, Any]:
    """Arguments of the envs."""
    seen = seen_kwargs(config.env_kwargs)
    return {**seen, "routes": routes, "model": config.model, **more}


def _training_pool(config: Config, routes: list[str]) -> Pool:
    """Slots take the routes by turns, and no two drives are alike."""
    return open_pool(
        config,
        config.num_envs,
        config.backend,
        config.workers,
        env_kwargs=_kwargs(config, routes, noise="episode"),
        sample_task=_order(config, routes),
    )


def _order(config: Config, routes: list[str], driven: int = 0) -> RouteOrder:
    """The order in which the slots drive the routes, after so many drives."""
    groups = config.num_envs // config.repeat
    return RouteOrder(routes, groups, config.seed, first=driven)


# The run ------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class TinyPhysicsParts(plain.Parts):
    """A run of the recipe.

    Attributes:
        ended: Number of drives that are over; a checkpoint ends those under way.
        under_way: Number of drives that have begun since, and go on.
    """

    config: Config
    routes: RouteSplit
    ended: int = 0
    under_way: int = 0
    # What the PID controller's drives cost, by route.
    _pid: dict[str, float] = field(default_factory=dict)

    def open_pool(self, backend: str, workers: int | None) -> Pool:
        """For drives whose noise is the route's own, so that they can be compared."""
        config = self.config
        # No more than have something to do, so that all workers have.
        slots = min(
            config.num_envs, max(config.evaluate_episodes, config.final_episodes)
        )
        kwargs = _kwargs(config, self.routes.validation)
        return open_pool(config, slots, backend, workers, env_kwargs=kwargs)

    def collect(self, count: int) -> Any:
        """Collect what the learner wants, and count the drives."""
        found = plain.Parts.collect(self, count)
        self.ended += len(found.episodes)
        if isinstance(wants_of(self.config), Rows):
            going_on = found.valid[-1].copy()
            last = len(found.valid) - 1
            going_on[[one.slot for one in found.episodes if one.row == last]] = False
            self.under_way = int(np.count_nonzero(going_on))
        return found

    def end_episodes(self, number: int) -> None:
        """Continue with the routes that come next in the order."""
        self.ended, self.under_way = self.ended + self.under_way, 0
        # Slots of a group drive the same routes.
        driven = self.ended // self.config.repeat
        self.pool.sample_task = _order(self.config, self.routes.training, driven)
        plain.Parts.end_episodes(self, number)

    def recipe_state(self) -> dict[str, Any]:
        """Return the place in the order of routes."""
        return {"drives": self.ended + self.under_way}

    def load(self, moment: Checkpoint) -> None:
        """Continue with a checkpoint, also one that does not tell the place."""
        plain.Parts.load(self, moment)
        self.ended, self.under_way = moment.recipe_state.get("drives", 0), 0

    def tasks(self, purpose: str, count: int) -> list[Any]:
        """Validation or test routes, again from the first if there are too few."""
        chosen: list[str] = getattr(self.routes, purpose)
        return [{"route": chosen[place % len(chosen)]} for place in range(count)]

    def measured(self, result: Evaluation) -> dict[str, float]:
        """Costs, and how they compare with the PID controller's on the same routes."""
        costs = [info["episode_cost"] for info in result.infos]
        total, lataccel, jerk = (
            float(np.mean([cost[name] for cost in costs]))
            for name in ("total", "lataccel", "jerk")
        )
        by_pid = self.pid_costs([info["route"] for info in result.infos])
        pid_cost = float(np.mean(by_pid))
        return {
            "cost": total,
            "cost_lataccel": lataccel,
            "cost_jerk": jerk,
            "pid_cost": pid_cost,
            "cost_ratio": total / pid_cost,
        }

    def pid_costs(self, routes: list[str]) -> list[float]:
        """Of the official controller, one for each route."""
        new = [route for route in dict.fromkeys(routes) if route not in self._pid]
        if new:
            layout = self.pool.layout
            with evaluation.open_pool(
                evaluation.controller_of(evaluation.PID_NAME),
                self.config.model,
                min(len(new), self.config.num_envs),
                backend=layout.backend,
                workers=None if layout.backend == "serial" else layout.workers,
                batched=True,
            ) as pool:
                costs = evaluation.drive(pool, PID(), new)
            self._pid |= {route: cost.total for route, cost in costs.items()}
        return [self._pid[route] for route in routes]

    def warm_up(self, say: Callable[[str], object]) -> None:
        """Clone the PID controller."""
        config = self.config
        if not config.clone_epochs:
            return
        rows = -(-config.clone_rows // self.pool.num_envs)
        scaled = bool(config.env_kwargs.get("scaled"))
        pid = UnsteadyPID(view_of(config.env), scaled)
        obs = Collector(self.pool, pid).collect(rows).obs
        shown: NDArray[np.float32] = obs.reshape(-1, obs.shape[-1])
        assert isinstance(self.learner, PPO)
        cloned = functools.partial(
            clone, self.learner, shown, pid.steady(shown), seed=config.seed
        )
        losses = cloned(epochs=config.clone_epochs, lr=1e-3)
        losses += cloned(epochs=max(1, config.clone_epochs // 4), lr=1e-4)
        off = math.sqrt(losses[-1])
        say(f"Cloned a PID controller from {len(shown):,} rows: off by {off:.4f}")


class UnsteadyPID:
    """A PID controller with an unsteady hand, so that it has something to correct."""

    def __init__(self, view: View, scaled: bool) -> None:
        self._view = view
        self._scaled = scaled

    def steady(self, shown: NDArray[Any]) -> NDArray[np.float32]:
        """What it does before its hand shakes."""
        return self._view.pid(shown, self._scaled)

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Act for every car."""
        action = self.steady(step.obs) + self._view.deviation * rng.normal(1)
        return Decision(action.astype(np.float32))


def build(config: Config) -> TinyPhysicsParts:
    """Open the pool and make a learner for what it shows."""
    if config.wrappers:
        raise OptionError(
            f"wrappers is {config.wrappers!r}, and recipe {config.recipe} makes its "
            "own envs: leave it out, or write a config with env: instead of recipe:"
        )
    routes = RouteSplit.of(config)
    # Now: the first visit to a damaged one may come after hours.
    check_routes([*routes.training, *routes.validation, *routes.test])
    kwargs = _kwargs(config, routes.training, noise="episode")
    config = config.model_copy(update={"env_kwargs": kwargs})
    built = plain.build(config, lambda *_: _training_pool(config, routes.training))
    common = {one.name: getattr(built, one.name) for one in fields(built)}
    return TinyPhysicsParts(**{**common, "config": config}, routes=routes)
