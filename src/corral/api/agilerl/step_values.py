"""The results of a step in AgileRL's form, with placeholders for absent agents."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.pettingzoo.step import MultiStep
from corral.engine.adapters.team import Team
from corral.engine.tree import mapped

Bools = NDArray[np.bool_]


class AgileValues:
    """Arrays `(slots, ...)` by agent, made from those by group."""

    def __init__(self, team: Team, slots: int) -> None:
        self._slots = slots
        self._places = [
            (agent, group.name, position)
            for agent, (group, position) in team.place.items()
        ]

    def seen(self, read: MultiStep) -> dict[Any, Any]:
        """The observation of each agent; its last one in the step that ends it.

        NaN for absent agents if the observation is of floats. For other dtypes AgileRL
        casts NaN, which is undefined; here they are zeros.
        """
        seen = {}
        for agent, name, position in self._places:
            alive = read.alive[name][:, position]
            obs = _column(read.obs[name], position)
            if alive.all():
                seen[agent] = obs
                continue
            # Where the env continues without the agent; else a new episode has started.
            last = read.ended_agents[name][:, position] & ~read.ended
            if last.any():
                final = _column(read.final_obs[name], position)
                obs = mapped(lambda a, b, at=last: _with(a, b, at), obs, final)
            gone = ~(alive | last)
            seen[agent] = mapped(lambda a, at=gone: _without(a, at), obs)
        return seen

    def outcomes(
        self, read: MultiStep
    ) -> tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any]]:
        """Rewards, terminations and truncations."""
        rewards, terminations, truncations = {}, {}, {}
        for agent, name, position in self._places:
            ended = read.ended_agents[name][:, position]
            # After the start of a new episode, `alive` is about that one.
            moved = ended | (read.alive[name][:, position] & ~read.ended)
            # Already NaN where the env returned none: see ReturnsAdapter.
            reward = read.reward[name][:, position].copy()
            terminated = read.terminated[name][:, position].copy()
            truncated = read.truncated[name][:, position].copy()
            if not moved.all():
                gone = ~moved
                terminated, truncated = (
                    terminated.astype(float),
                    truncated.astype(float),
                )
                terminated[gone] = truncated[gone] = np.nan
            rewards[agent] = reward
            terminations[agent], truncations[agent] = terminated, truncated
        return rewards, terminations, truncations


def _column(batch: Any, position: int) -> Any:
    """One agent's values; single numbers get an axis of 1, as in AgileRL."""

    def part(array: NDArray[Any]) -> NDArray[Any]:
        own = array[:, position]
        return own[:, None] if own.ndim == 1 else own

    return mapped(part, batch)


def _with(array: NDArray[Any], other: NDArray[Any], at: Bools) -> NDArray[Any]:
    array = array.copy()
    array[at] = other[at]
    return array


def _without(array: NDArray[Any], at: Bools) -> NDArray[Any]:
    if not at.any():
        return array
    array = array.copy()
    array[at] = np.nan if np.issubdtype(array.dtype, np.floating) else 0
    return array


def without_none(infos: dict[Any, Any]) -> dict[Any, Any]:
    """Replace None by NaN, which AgileRL's algorithms test for."""
    for key, value in infos.items():
        if isinstance(value, dict):
            without_none(value)
        elif isinstance(value, np.ndarray) and value.dtype == object:
            infos[key] = _numbers(value)
    return infos


def _numbers(values: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers, or arrays of them, and None; leave anything else."""
    try:
        known = [np.asarray(value) for value in values if value is not None]
    except ValueError:  # rows of different lengths
        return values
    if len(known) == len(values):
        return values
    shapes = {value.shape for value in known}
    if len(shapes) > 1 or any(value.dtype.kind not in "biuf" for value in known):
        return values
    dtype = np.float64 if known else np.float32  # the latter is AgileRL's
    numbers = np.full((len(values), *(shapes.pop() if shapes else ())), np.nan, dtype)
    for position, value in enumerate(values):
        if value is not None:
            numbers[position] = value
    return numbers
