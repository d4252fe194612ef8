"""How a policy does in the first, second, ... episode of a trial, for the report."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.core import Decision, Generators, Step
from corral.engine.adapters.trials import LENGTHS, RETURNS
from corral.engine.pool import Pool
from corral.engine.worker.seeds import EvaluationSeed
from corral.rollouts.episodic import Episode, run_episodes
from corral.rollouts.evaluation import Evaluation
from corral.train.recipes.trials import TrialSettings, trials_of
from corral.train.run.parts import Parts

# Trials that measure what standing still returns.
MAX_STILL = 20
# Trials on the map.
PATHS = 6


class StandStill:
    """Chooses 0 for everything, or what is nearest to it."""

    def __init__(self, space: spaces.Box) -> None:
        self._action = np.clip(
            np.zeros(space.shape, space.dtype), space.low, space.high
        )

    def act(self, step: Step, carry: Any, rng: Generators) -> Decision:
        """Do nothing."""
        return Decision(np.stack([self._action] * len(step)))


def adaptation_of(parts: Parts, result: Evaluation) -> dict[str, Any]:
    """Return what the report shows about an evaluation of trials; {} without trials."""
    settings = trials_of(parts.config)
    found = [info[RETURNS] for info in result.infos if RETURNS in info]
    if settings is None or not found or parts.evaluation_pool is None:
        return {}
    pool, returns = parts.evaluation_pool, np.stack(found)
    return {
        "adaptation": {
            "returns": returns.mean(axis=0).tolist(),
            "deviations": returns.std(axis=0).tolist(),
            "still": _standing_still(parts, pool, min(len(result), MAX_STILL)),
            "paths": _paths(parts, pool, settings),
            "goal_radius": settings.goal_radius,
        }
    }


def _standing_still(parts: Parts, pool: Pool, count: int) -> list[float] | None:
    """Mean returns by episode on the same tasks; None if no action is zero."""
    space = pool.spec.action_space
    if not isinstance(space, spaces.Box):
        return None
    trials = _run(parts, pool, StandStill(space), count)
    found = [trial.info[RETURNS] for trial in trials if RETURNS in trial.info]
    return np.mean(found, axis=0).tolist() if found else None


def _paths(parts: Parts, pool: Pool, settings: TrialSettings) -> list[dict[str, Any]]:
    """Return x and y of every step of some trials, an array for each episode."""
    if settings.map is None or parts.obs_norm is not None:
        return []
    policy = parts.learner.policy.deterministic()
    trials = _run(parts, pool, policy, PATHS, rows=True)
    return [_path(trial, settings.map) for trial in trials if LENGTHS in trial.info]


def _path(trial: Episode, columns: tuple[int, int]) -> dict[str, Any]:
    points: NDArray[Any] = np.asarray(trial.obs)[:, list(columns)]
    ends = np.cumsum(trial.info[LENGTHS])[:-1]
    episodes = np.split(points.round(3), ends)
    goal = np.ravel(trial.task) if np.size(trial.task) == len(columns) else None
    return {
        "episodes": [episode.tolist() for episode in episodes],
        "goal": None if goal is None else goal.tolist(),
    }


def _run(
    parts: Parts, pool: Pool, policy: Any, count: int, rows: bool = False
) -> list[Episode]:
    """Run trials of the final evaluation again."""
    return run_episodes(
        pool,
        policy,
        episodes=count,
        tasks=parts.tasks("test", count),
        seed=parts.seed(EvaluationSeed.FINAL),
        rows=rows,
        max_length=parts.config.evaluate_length,
        obs_norm=parts.obs_norm,
    )
