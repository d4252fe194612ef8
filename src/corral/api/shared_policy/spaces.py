"""The spaces of one policy for all agents, and the way there and back.

    AlikeSpaces     agents have the same spaces: theirs
    PaddedSpaces    they have not: the widest, in which others leave places empty

Arrays of a team are `(envs, agents, ...)` by group; rows are agents in the env's order,
those of one env after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import Space, spaces
from gymnasium.spaces.utils import flatdim
from numpy.typing import NDArray

from corral.api.shared_policy.flat_batch import flat_batch
from corral.engine.adapters.team import Group, Team
from corral.engine.layout.codec import codec_for
from corral.engine.tree import mapped
from corral.errors import OptionError, SpaceMismatch

Array = NDArray[Any]
Bools = NDArray[np.bool_]
ByGroup = Mapping[str, Any]
"""Group -> arrays `(envs, agents, ...)`."""


class SharedSpaces(Protocol):
    """What one policy sees and does."""

    observation_space: Space[Any]
    action_space: Space[Any]

    def rows(self, seen: ByGroup, there: ByGroup, envs: int) -> Any:
        """What everybody sees, a row each; zeros for those who are not there."""

    def flags(self, flags: ByGroup) -> Array:
        """One number of everybody, `(envs, agents)`."""

    def actions(self, batch: Any, envs: int) -> dict[str, Any]:
        """A row for everybody -> the team's action."""

    def masks(self, masks: ByGroup, envs: int) -> Bools | None:
        """What everybody may do, a row each; None if there is nothing to choose."""


def shared_spaces(team: Team, pad: bool) -> SharedSpaces:
    """The one way, the other, or the reason why neither."""
    if len(team.groups) == 1:
        return AlikeSpaces(team)
    if pad:
        return PaddedSpaces(team)
    kinds = "; ".join(
        f"{group.name}: {group.observation_space} -> {group.action_space}"
        for group in team.groups
    )
    raise OptionError(
        f"these agents have different spaces, so one policy does not fit all ({kinds})."
        " Pass pad=True to give all of them the widest, or use corral.make_multi with "
        "a policy for each group"
    )


class AlikeSpaces:
    """All agents are of one group."""

    def __init__(self, team: Team) -> None:
        (self._group,) = team.groups
        self.observation_space = self._group.observation_space
        self.action_space = self._group.action_space
        self._agents = len(team.agents)
        self._codec = codec_for(self.action_space)

    def rows(self, seen: ByGroup, there: ByGroup, envs: int) -> Any:
        """Views, where memory allows."""
        return _as_rows(seen[self._group.name], envs * self._agents)

    def flags(self, flags: ByGroup) -> Array:
        """The group's own."""
        array: Array = flags[self._group.name]
        return array

    def actions(self, batch: Any, envs: int) -> dict[str, Any]:
        """The same, with a place for env and agent each."""
        # As strict about shapes as any other pool: rows must not be taken for others.
        parts, _ = self._codec.split(batch, envs * self._agents)
        shaped = [part.reshape(envs, self._agents, *part.shape[1:]) for part in parts]
        return {self._group.name: self._codec.assemble(shaped, ())}

    def masks(self, masks: ByGroup, envs: int) -> Bools | None:
        """As the env gave them."""
        mask: Bools | None = masks[self._group.name]
        return None if mask is None else mask.reshape(envs * self._agents, -1)


class PaddedSpaces:
    """Everybody sees float32 numbers, filled up with zeros, and whose kind they are.

    An observation is what Gymnasium's `flatten` makes of it, zeros up to the longest,
    then one number for each group, 1 for the agent's own. Actions are the most that
    anybody has; choices beyond an agent's own mean its first.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._columns = [
            np.array([team.agents.index(agent) for agent in group.agents])
            for group in team.groups
        ]
        self._wide = max(_numbers_in(group) for group in team.groups)
        width = self._wide + len(team.groups)
        self.observation_space: Space[Any] = spaces.Box(
            -np.inf, np.inf, (width,), np.float32
        )
        self.action_space, self._fit = _widest(team)

    def rows(self, seen: ByGroup, there: ByGroup, envs: int) -> Any:
        """Always memory of its own."""
        agents, shape = len(self._team.agents), self.observation_space.shape
        assert shape is not None
        rows = np.zeros((envs, agents, *shape), np.float32)
        for number, group in enumerate(self._team.groups):
            here, size = len(group.agents), _numbers_in(group)
            batch = _as_rows(seen[group.name], envs * here)
            flat = flat_batch(group.observation_space, batch, envs * here)
            columns = self._columns[number]
            rows[:, columns, :size] = flat.reshape(envs, here, size)
            rows[:, columns, self._wide + number] = 1.0
        rows[~self.flags(there)] = 0.0
        return rows.reshape(envs * agents, *shape)

    def flags(self, flags: ByGroup) -> Array:
        """The groups' own, in the env's order of agents."""
        first = flags[self._team.groups[0].name]
        whole = np.empty((len(first), len(self._team.agents)), first.dtype)
        for group, columns in zip(self._team.groups, self._columns, strict=True):
            whole[:, columns] = flags[group.name]
        return whole

    def actions(self, batch: Any, envs: int) -> dict[str, Any]:
        """Each group's columns, in its own space."""
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
            group.name: self._fit(group, given[:, columns])
            for group, columns in zip(self._team.groups, self._columns, strict=True)
        }

    def masks(self, masks: ByGroup, envs: int) -> Bools | None:
        """What is beyond an agent's own is False."""
        if not isinstance(self.action_space, spaces.Discrete):
            return None
        agents = len(self._team.agents)
        whole = np.zeros((envs, agents, int(self.action_space.n)), np.bool_)
        for group, columns in zip(self._team.groups, self._columns, strict=True):
            whole[:, columns, : group.mask] = masks[group.name]
        return whole.reshape(envs * agents, -1)


def _as_rows(batch: Any, count: int) -> Any:
    return mapped(lambda array: array.reshape(count, *array.shape[2:]), batch)


def _numbers_in(group: Group) -> int:
    space = group.observation_space
    if not space.is_np_flattenable:
        raise OptionError(
            f"agents {group.name!r} have the observation space {space}, which is no "
            "row of numbers"
        )
    return flatdim(space)


def _widest(team: Team) -> tuple[Space[Any], Callable[[Group, Array], Array]]:
    each = [group.action_space for group in team.groups]
    if all(isinstance(space, spaces.Discrete) for space in each):
        return spaces.Discrete(max(int(space.n) for space in each)), _chosen  # type: ignore[attr-defined]
    if all(isinstance(space, spaces.Box) for space in each):
        size = max(flatdim(space) for space in each)
        low = np.full(size, min(float(np.min(space.low)) for space in each))  # type: ignore[attr-defined]
        high = np.full(size, max(float(np.max(space.high)) for space in each))  # type: ignore[attr-defined]
        return spaces.Box(
            low.astype(np.float32), high.astype(np.float32), dtype=np.float32
        ), _cut
    listed = ", ".join(f"{group.name}: {group.action_space}" for group in team.groups)
    raise OptionError(
        f"actions can be padded if all are Discrete or all are Box; these are {listed}."
        " Use corral.make_multi with a policy for each group"
    )


def _chosen(group: Group, actions: Array) -> Array:
    space = group.action_space
    assert isinstance(space, spaces.Discrete)
    within: Array = np.where(actions < space.n, actions, 0) + space.start
    return within


def _cut(group: Group, actions: Array) -> Array:
    shape = group.action_space.shape
    assert shape is not None
    size = int(np.prod(shape))
    return actions[..., :size].reshape(*actions.shape[:2], *shape)
