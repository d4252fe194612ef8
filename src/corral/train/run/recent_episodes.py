"""Means over the latest episodes of training: return, length, success, infos.

Terminal, log, metrics.jsonl, TensorBoard and the report all show these means.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from corral.rollouts.evaluation import SUCCESS_KEYS, success_of
from corral.rollouts.rollout import EpisodeSummary

RECENT_EPISODES = 100
"""Episodes that a mean is taken over."""
INFO_PREFIX = "info/"
"""Before the name of an info's entry."""
MEASURED_KEYS = ("return", "length")


class RecentEpisodes:
    """The latest episodes."""

    def __init__(self) -> None:
        self._rows: deque[Mapping[str, Any]] = deque(maxlen=RECENT_EPISODES)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows of `row_of`."""
        self._rows.extend(rows)

    def means(self) -> dict[str, float]:
        """By name: return, length, success_rate, info/KEY."""
        return means_of(self._rows)


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
