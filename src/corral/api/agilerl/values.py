"""Actions and results in AgileRL's form: agent -> one value per env.

Actions are NaN where an agent does not act; results have placeholders for absent
agents.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.api.pettingzoo.actions import MultiActions
from corral.api.pettingzoo.step import MultiStep, by_agent
from corral.engine.adapters.team import Team
from corral.engine.layout.codec import codec_for
from corral.engine.tree import mapped
from corral.errors import SpaceMismatch

Array = NDArray[Any]


class AgileActions(MultiActions):
    """Converts them into one batch of the team's action space, if they fit."""

    def fitting_batch(
        self, actions: Mapping[Any, Any], acting: Mapping[str, Array] | None
    ) -> dict[str, Any] | None:
        """The batch; None if an action of a living agent is missing or does not fit."""
        if acting is None or not actions.keys() <= self._team.place.keys():
            return None
        columns = {
            agent: self._fitting(agent, given, acting)
            for agent, given in actions.items()
        }
        if any(column is None for column in columns.values()):
            return None
        try:
            return self.batch(columns, acting)
        except SpaceMismatch:
            return None

    def _fitting(
        self, agent: Any, given: Any, acting: Mapping[str, Array]
    ) -> Array | None:
        """One agent's actions in every env; None unless all fit its space."""
        group, position = self._team.place[agent]
        codec = codec_for(group.action_space)
        if not codec.plain or given is None:
            return None
        if hasattr(given, "detach"):  # a tensor
            given = given.detach().cpu()
        (leaf,), array = codec.leaves, np.asarray(given)
        shape = (self._slots, *leaf.shape)
        if not leaf.shape and array.shape == (*shape, 1):
            array = array[:, 0]  # Discrete actions with an extra axis
        if array.dtype.kind not in "biuf" or array.shape != shape:
            return None
        if array.dtype.kind == "f":
            silent = np.isnan(array.reshape(len(array), -1)).all(axis=1)
            if (silent & acting[group.name][:, position]).any():
                return None
            array = np.where(silent.reshape(-1, *[1] * (array.ndim - 1)), 0, array)
        if np.can_cast(array.dtype, leaf.dtype, "same_kind"):
            return array
        # Discrete actions are floats if some of them are NaN.
        whole = array.astype(leaf.dtype)
        return whole if np.array_equal(whole, array) else None

    def apart(
        self, actions: Mapping[Any, Any], acting: Mapping[str, Array] | None
    ) -> list[dict[Any, Any]]:
        """One dict per env, of the living agents whose action is not NaN."""
        if not actions:
            raise SpaceMismatch(
                "actions is empty; pass the action of at least one agent"
            )
        each: list[dict[Any, Any]] = [{} for _ in range(self._slots)]
        for agent, values in actions.items():
            if np.ndim(values) == 0 or len(values) != self._slots:
                raise SpaceMismatch(
                    f"actions[{agent!r}] is {values!r:.80}; it must have one action "
                    f"for each of the {self._slots} envs"
                )
            alive = np.ones(self._slots, np.bool_)  # the envs judge unknown agents
            if acting is not None and agent in self._team.place:
                group, position = self._team.place[agent]
                alive = acting[group.name][:, position]
            for slot in np.flatnonzero(alive).tolist():
                action: Any = values[slot]
                if not _is_nan(action, slot, agent):
                    each[slot][agent] = action if np.ndim(action) else int(action)
        return each


def _is_nan(action: Any, slot: int, agent: Any) -> bool:
    try:
        return bool(np.isnan(action).all())
    except TypeError:
        raise SpaceMismatch(
            f"actions[{agent!r}][{slot}] is {action!r:.80}, which is not a number"
        ) from None


# Results ------------------------------------------------------------------------------


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
    for agent, here in alive.items():
        if here.all():
            continue
        # Where the env continues without the agent; else a new episode has started.
        last = ended[agent] & ~read.step.ended
        gone = ~(here | last)
        fill = functools.partial(_filled, last=last, gone=gone)
        shown[agent] = mapped(fill, shown[agent], finals[agent])
    return shown  # type: ignore[no-any-return]


def outcomes(team: Team, read: MultiStep) -> tuple[dict[Any, Any], ...]:
    """Rewards, terminations and truncations; flags are NaN for absent agents."""
    alive, ended = by_agent(team, read.alive), by_agent(team, read.ended_agents)
    # After the start of a new episode, `alive` is about that one.
    moved = {agent: ended[agent] | (alive[agent] & ~read.step.ended) for agent in alive}
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


def _filled(obs: Array, final: Array, last: Array, gone: Array) -> Array:
    obs = obs.copy()
    obs[last] = final[last]
    obs[gone] = np.nan if obs.dtype.kind == "f" else 0
    return obs


def _with_axis(own: Array) -> Array:
    """Single numbers get an axis of 1, as in AgileRL."""
    return own[:, None] if own.ndim == 1 else own


def without_none(infos: dict[Any, Any]) -> dict[Any, Any]:
    """Replace None by NaN, which AgileRL's algorithms test for."""
    for key, value in infos.items():
        if isinstance(value, dict):
            without_none(value)
        elif isinstance(value, np.ndarray) and value.dtype == object:
            infos[key] = _with_nan(value)
    return infos


def _with_nan(values: Array) -> Array:
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
