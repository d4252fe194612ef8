"""The results of a step in AgileRL's form, with placeholders for absent agents."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.pettingzoo.step import MultiStep, by_agent
from corral.engine.adapters.team import Team
from corral.engine.tree import mapped

Bools = NDArray[np.bool_]


def seen(team: Team, read: MultiStep) -> dict[Any, Any]:
    """The observation of each agent; its last one in the step that ends it.

    NaN for absent agents if the observation is of floats. For other dtypes AgileRL
    casts NaN, which is undefined; here they are zeros.
    """
    shown = mapped(_with_axis, by_agent(team, read.obs))
    alive = by_agent(team, read.alive)
    if all(flags.all() for flags in alive.values()):
        return shown  # type: ignore[no-any-return]
    ended = by_agent(team, read.ended_agents)
    finals = mapped(_with_axis, by_agent(team, read.final_obs))
    for agent, obs in shown.items():
        # Where the env continues without the agent; else a new episode has started.
        last = ended[agent] & ~read.ended
        if last.any():
            obs = mapped(lambda a, b, at=last: _with(a, b, at), obs, finals[agent])
        gone = ~(alive[agent] | last)
        shown[agent] = mapped(lambda a, at=gone: _without(a, at), obs)
    return shown  # type: ignore[no-any-return]


def outcomes(team: Team, read: MultiStep) -> tuple[dict[Any, Any], ...]:
    """Rewards, terminations and truncations; flags are NaN for absent agents."""
    alive, ended = by_agent(team, read.alive), by_agent(team, read.ended_agents)
    # After the start of a new episode, `alive` is about that one.
    moved = {agent: ended[agent] | (alive[agent] & ~read.ended) for agent in alive}
    flags = [
        {
            agent: one.copy()
            if moved[agent].all()
            else np.where(moved[agent], one, np.nan)
            for agent, one in by_agent(team, part).items()
        }
        for part in (read.terminated, read.truncated)
    ]
    # Already NaN where the env returned none: see ReturnsAdapter.
    return mapped(np.copy, by_agent(team, read.reward)), *flags


def _with_axis(own: NDArray[Any]) -> NDArray[Any]:
    """Single numbers get an axis of 1, as in AgileRL."""
    return own[:, None] if own.ndim == 1 else own


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
