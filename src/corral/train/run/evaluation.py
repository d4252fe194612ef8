"""Metrics of episodes: their means, and whether they are the best so far."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from corral.errors import OptionError
from corral.rollouts.evaluation import SUCCESS_KEYS, success_of
from corral.rollouts.rollout import EpisodeSummary
from corral.train.recipes.config import RunConfig

EPISODE_METRICS = ("episode/return", "episode/length")
"""Metrics that there are once an episode has ended."""


def is_better(
    config: RunConfig, metrics: Mapping[str, float], best: float | None
) -> bool:
    """Return whether the best_metric is better than the best so far; a tie is not."""
    name = config.best_metric
    if name not in metrics and name in EPISODE_METRICS:
        return False
    if name not in metrics:
        near = difflib.get_close_matches(name, metrics, n=1)
        meant = f"; did you mean {near[0]}?" if near else "."
        raise OptionError(
            f"best_metric is {name!r}, which is not measured{meant} "
            f"Measured metrics: {', '.join(sorted(metrics))}"
        )
    value = metrics[name]
    if math.isnan(value):  # nothing is known of it, as where all episodes failed
        return False
    return best is None or (value > best if config.best_is == "max" else value < best)


def is_enough(config: RunConfig, best: float | None) -> bool:
    """Return whether the best value reaches stop_at, so that the run may stop."""
    target = config.stop_at
    if target is None or best is None:
        return False
    return best >= target if config.best_is == "max" else best <= target


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
