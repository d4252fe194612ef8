"""The spaces of one policy for all agents, and conversions between rows and teams.

    SharedSpaces    the agents have the same spaces
    PaddedSpaces    they have different ones: the widest, with padding

Arrays of a team are `(envs, agents, ...)` by group; rows are agents in the env's order,
env after env.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.utils import flatdim
from numpy.typing import NDArray

from corral.engine.adapters.flattened_agents import flat_batch, flat_box
from corral.engine.adapters.team import MASK_KEY, Team, masks_of
from corral.engine.layout.codec import codec_for
from corral.engine.tree import mapped
from corral.errors import OptionError, SpaceMismatch

Array = NDArray[Any]
Bools = NDArray[np.bool_]
# Group -> arrays `(envs, agents, ...)`.
ByGroup = Mapping[str, Any]
# The key of an observation that has a mask beside it.
OBSERVATION = "observation"


class SharedSpaces:
    """The spaces of agents that have the same; rows are those of the one group."""

    observation_space: Space[Any]
    action_space: Space[Any]
    # Whether observations of `seen` have masks beside them.
    masked = False

    def __init__(self, team: Team) -> None:
        (self._group,) = team.groups
        self._team = team
        self.observation_space = self._group.observation_space
        self.action_space = self._group.action_space
        self._agents = len(team.agents)
        self._codec = codec_for(self.action_space)

    def with_masks(self) -> SharedSpaces:
        """The same, with `action_mask` beside each observation, in a Dict."""
        other = copy.copy(self)
        other.masked = True
        options = int(getattr(self.action_space, "n", 0)) or int(
            getattr(self.action_space, "nvec", np.zeros(0)).sum()
        )
        other.observation_space = spaces.Dict(
            {
                OBSERVATION: self.observation_space,
                MASK_KEY: spaces.Box(0, 1, (options,), np.int8),
            }
        )
        return other

    def seen(self, batch: ByGroup, envs: int) -> Any:
        """What each agent sees, a row each, from a batch as the block has it.

        Also the last observations of agents that have just ended.
        """
        names = [group.name for group in self._team.groups]
        there = {}
        for name in names:
            leaves = batch[name]
            there[name] = leaves["alive"] | leaves["terminated"] | leaves["truncated"]
        rows = self.rows({name: batch[name]["obs"] for name in names}, there, envs)
        if not self.masked:
            return rows
        given = {g.name: masks_of(g, batch[g.name]) for g in self._team.groups}
        masks = self.masks(given, envs)
        assert masks is not None, "only discrete actions have masks"
        return {OBSERVATION: rows, MASK_KEY: masks.astype(np.int8)}

    def rows(self, seen: ByGroup, there: ByGroup, envs: int) -> Any:
        """The observations, a row per agent; zeros for absent agents."""
        return as_rows(seen[self._group.name], envs * self._agents)

    def flags(self, flags: ByGroup) -> Array:
        """One number per agent, `(envs, agents)`."""
        array: Array = flags[self._group.name]
        return array

    def actions(self, batch: Any, envs: int) -> dict[str, Any]:
        """Convert a row per agent to the team's action."""
        # Shapes are checked: a wrong one would move actions to other agents.
        parts, _ = self._codec.split(batch, envs * self._agents)
        shaped = [part.reshape(envs, self._agents, *part.shape[1:]) for part in parts]
        return {self._group.name: self._codec.assemble(shaped, ())}

    def masks(self, masks: ByGroup, envs: int) -> Bools | None:
        """The valid actions, a row per agent; None if they cannot be masked."""
        mask: Bools | None = masks[self._group.name]
        return None if mask is None else mask.reshape(-1, mask.shape[-1])


class PaddedSpaces(SharedSpaces):
    """Observations are float32 numbers, padded with zeros, and the agent's group.

    An observation is flattened as by Gymnasium's `flatten`, padded to the longest, and
    followed by a one-hot vector of the group. The action space is the largest of all
    agents; actions beyond an agent's own mean its first.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._agents = len(team.agents)
        self._columns = [
            np.array([team.agents.index(agent) for agent in group.agents])
            for group in team.groups
        ]
        self._wide = max(
            flat_box(f"group {group.name!r}", group.observation_space).shape[0]
            for group in team.groups
        )
        self._shape = (self._wide + len(team.groups),)
        self.observation_space = spaces.Box(-np.inf, np.inf, self._shape, np.float32)
        self.action_space = _widest(team)

    def rows(self, seen: ByGroup, there: ByGroup, envs: int) -> Any:
        """See SharedSpaces.rows; always a copy."""
        flat = {}
        for group in self._team.groups:
            here = len(group.agents)
            batch = as_rows(seen[group.name], envs * here)
            rows = flat_batch(group.observation_space, batch, envs * here)
            flat[group.name] = rows.reshape(envs, here, rows.shape[-1])
        whole = self._whole(flat, *self._shape)
        for number, columns in enumerate(self._columns):
            whole[:, columns, self._wide + number] = 1.0
        whole[~self.flags(there)] = 0.0
        return whole.reshape(-1, *self._shape)

    def flags(self, flags: ByGroup) -> Array:
        return self._whole(flags)

    def _whole(self, parts: ByGroup, *width: int) -> Array:
        """Arrays of groups in one, `(envs, agents, *width)`, with zeros around."""
        first = parts[self._team.groups[0].name]
        whole = np.zeros((len(first), len(self._team.agents), *width), first.dtype)
        for group, columns in zip(self._team.groups, self._columns, strict=True):
            part = parts[group.name]
            inside: Any = (slice(None), columns, *map(slice, part.shape[2:]))
            whole[inside] = part
        return whole

    def actions(self, batch: Any, envs: int) -> dict[str, Any]:
        agents, shape = len(self._team.agents), self.action_space.shape
        assert shape is not None
        given = np.asarray(batch)
        if given.shape != (envs * agents, *shape):
            raise SpaceMismatch(
                f"actions have shape {given.shape}; expected {(envs * agents, *shape)}:"
                f" {agents} agents of {envs} envs"
            )
        given = given.reshape(envs, agents, *shape)
        return {
            group.name: _fitted(group.action_space, given[:, columns])
            for group, columns in zip(self._team.groups, self._columns, strict=True)
        }

    def masks(self, masks: ByGroup, envs: int) -> Bools | None:
        """See SharedSpaces.masks; actions beyond an agent's own are False."""
        unknown = any(one is None for one in masks.values())
        if unknown or not isinstance(self.action_space, spaces.Discrete):
            return None
        whole = self._whole(masks, int(self.action_space.n))
        return whole.reshape(-1, whole.shape[-1])


def shared_spaces(team: Team, pad: bool) -> SharedSpaces:
    """The spaces of one policy; OptionError if the agents differ and `pad` is False."""
    if len(team.groups) == 1:
        return SharedSpaces(team)
    if pad:
        return PaddedSpaces(team)
    kinds = "; ".join(
        f"{group.name}: {group.observation_space} -> {group.action_space}"
        for group in team.groups
    )
    raise OptionError(
        f"the agents have different spaces, so one policy does not fit all ({kinds})."
        " Pass pad=True to give all of them the widest, or use corral.make_multi with "
        "a policy for each group"
    )


def as_rows(batch: Any, count: int) -> Any:
    """Arrays `(envs, agents, ...)` as `(count, ...)`."""
    return mapped(lambda array: array.reshape(count, *array.shape[2:]), batch)


def _widest(team: Team) -> Space[Any]:
    each: list[Any] = [group.action_space for group in team.groups]
    if all(isinstance(space, spaces.Discrete) for space in each):
        return spaces.Discrete(max(int(space.n) for space in each))
    if all(isinstance(space, spaces.Box) for space in each):
        size = max(flatdim(space) for space in each)
        low = min(float(np.min(space.low)) for space in each)
        high = max(float(np.max(space.high)) for space in each)
        return spaces.Box(np.float32(low), np.float32(high), (size,), np.float32)
    listed = ", ".join(f"{group.name}: {group.action_space}" for group in team.groups)
    raise OptionError(
        f"pad=True needs action spaces that are all Discrete or all Box, got {listed}."
        " Use corral.make_multi with a policy for each group"
    )


def _fitted(space: Any, actions: Array) -> Array:
    """Actions of the widest space as actions of an agent's own."""
    if isinstance(space, spaces.Discrete):
        within: Array = np.where(actions < space.n, actions, 0) + space.start
        return within
    return actions[..., : flatdim(space)].reshape(*actions.shape[:2], *space.shape)
