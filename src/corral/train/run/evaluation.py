"""Exactly N episodes with what was learnt so far, beside the training.

The envs are others than those that collect, the actions the most likely ones, and the
episodes the same in every evaluation of a run, so that two of them can be compared.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from corral.engine.pool import Pool
from corral.engine.worker.seeds import EvaluationSeed, episode_seed
from corral.errors import Fault, OptionError
from corral.rollouts.evaluation import SUCCESS_KEYS, Evaluation, evaluate, success_of
from corral.rollouts.rollout import EpisodeSummary
from corral.train.recipes.config import RunConfig
from corral.train.run.parts import Parts

CUT_KEY, FAILED_KEY = "cut", "failed"
"""How many episodes of an evaluation were, if any were."""
EPISODE_METRICS = ("episode/return", "episode/length")
"""Metrics that there are once an episode has ended."""


class Evaluator:
    """Evaluates a learner's policy; its envs are made when first needed."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._config = parts.config
        self.pool: Pool | None = None
        """The envs, once they are needed."""
        self.on_restart: Callable[[Fault], None] | None = None
        """Called with every restart; see `Pool.call_on_restart`."""

    def validate(self) -> dict[str, float]:
        """The metrics of an evaluation while training."""
        config, seed = self._config, self.seed(EvaluationSeed.VALIDATION)
        result = self.episodes(config.evaluate_episodes, seed, purpose="validation")
        more = self._parts.measured(result)
        infos = means_of(numbers_of(info) for info in result.infos)
        cut = np.count_nonzero(result.lengths >= config.evaluate_length)
        lost = {CUT_KEY: float(cut), FAILED_KEY: float(len(result.failed))}
        known = result.lengths[result.lengths > 0]  # of those that did not fail
        metrics = {
            "return": result.mean,
            "return_std": result.std,
            "length": float(np.mean(known)) if len(known) else math.nan,
            **infos,
            **more,
            **{name: count for name, count in lost.items() if count},
        }
        return {f"eval/{name}": value for name, value in metrics.items()}

    def episodes(
        self, count: int, seed: int, stochastic: bool = False, purpose: str = "test"
    ) -> Evaluation:
        """Exactly so many, of these seeds."""
        parts = self._parts
        policy = parts.learner.policy
        return evaluate(
            policy.stochastic() if stochastic else policy.deterministic(),
            self._opened(),
            episodes=count,
            seed=seed,
            tasks=parts.tasks(purpose, count),
            max_length=self._config.evaluate_length,
            obs_norm=parts.obs_norm,
        )

    def seed(self, purpose: EvaluationSeed) -> int:
        """What the episodes' seeds are made from."""
        return episode_seed(self._config.seed, purpose)

    def _opened(self) -> Pool:
        if self.pool is None:
            # As the envs that collect were placed: measuring again would say the same.
            layout = self._parts.pool.layout
            workers = None if layout.backend == "serial" else layout.workers
            self.pool = self._parts.open_pool(layout.backend, workers)
            self.pool.call_on_restart(self.on_restart)
        return self.pool

    def close(self) -> None:
        """Close the envs."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None


class Best:
    """Which evaluation was the best so far."""

    def __init__(self, config: RunConfig, value: float | None = None) -> None:
        self._metric = config.best_metric
        self._sign = 1.0 if config.best_is == "max" else -1.0
        self._target = config.stop_at
        self.value = value

    def improved(self, metrics: Mapping[str, float]) -> bool:
        """Whether these are better than all before; a tie is not."""
        if self._metric not in metrics and self._metric in EPISODE_METRICS:
            return False
        if self._metric not in metrics:
            near = difflib.get_close_matches(self._metric, metrics, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise OptionError(
                f"best_metric is {self._metric!r}, which is not measured{meant} "
                f"Measured metrics: {', '.join(sorted(metrics))}"
            )
        value = metrics[self._metric]
        if math.isnan(value):  # nothing is known of it, as where all episodes failed
            return False
        better = self.value is None or self._sign * value > self._sign * self.value
        if better:
            self.value = value
        return better

    @property
    def is_enough(self) -> bool:
        """Whether the run may stop."""
        if self._target is None or self.value is None:
            return False
        return self._sign * (self.value - self._target) >= 0


INFO_PREFIX = "info/"
"""Before the name of an info's entry."""
MEASURED_KEYS = ("return", "length")


def row_of(episode: EpisodeSummary) -> dict[str, float]:
    """Return the row that is written about an episode."""
    return {
        "return": episode.return_,
        "length": episode.length,
        "slot": episode.slot,
        "seed": episode.seed,
        "terminated": episode.terminated,
        **numbers_of(episode.info),
    }


def numbers_of(info: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in an episode's last info."""
    found = ((f"{INFO_PREFIX}{key}", _number(value)) for key, value in info.items())
    return {name: number for name, number in found if number is not None}


def means_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The mean of everything that rows have measured, over those that have it."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in _measured(row).items():
            if value is not None and math.isfinite(value):
                values.setdefault(name, []).append(value)
    return {name: float(np.mean(kept)) for name, kept in values.items()}


def _measured(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a row to average; success always under the same name."""
    infos = {
        key[len(INFO_PREFIX) :]: row[key] for key in row if key.startswith(INFO_PREFIX)
    }
    kept = {name: row[name] for name in MEASURED_KEYS if name in row}
    if (success := success_of(infos)) is not None:
        kept["success_rate"] = success
        infos = {key: infos[key] for key in infos if key not in SUCCESS_KEYS}
    return kept | {f"{INFO_PREFIX}{key}": value for key, value in infos.items()}


def _number(value: Any) -> float | None:
    """A number, also of numpy or in an array of size 1; None for other values."""
    if isinstance(value, (np.generic, np.ndarray)) and value.size == 1:
        value = value.item()
    return value if isinstance(value, (int, float)) else None
