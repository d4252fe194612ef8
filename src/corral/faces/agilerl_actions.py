"""What AgileRL's users send: a dict of agent -> one action per env, some are NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.adapters.team import Group, Team
from corral.errors import SpaceMismatch
from corral.layout.codec import codec_for
from corral.layout.contract import Leaf

Array = NDArray[Any]


class AgileActions:
    """Turns them into one batch of the team's action space, where they fit."""

    def __init__(self, team: Team, slots: int) -> None:
        self._team = team
        self._slots = slots
        self._codecs = [codec_for(group.action_space) for group in team.groups]

    def batch(
        self, actions: Mapping[Any, Any], acting: Mapping[str, Array] | None
    ) -> dict[str, Any] | None:
        """The batch; None where somebody who could act does not, or acts oddly."""
        if acting is None or not self._known(actions):
            return None
        batch = {}
        for index, group in enumerate(self._team.groups):
            joined = self._joined(group, index, actions, acting[group.name])
            if joined is None:
                return None
            batch[group.name] = joined
        return batch

    def _known(self, actions: Mapping[Any, Any]) -> bool:
        return all(agent in self._team.place for agent in actions)

    def _joined(
        self, group: Group, index: int, actions: Mapping[Any, Any], acting: Array
    ) -> Array | None:
        """One group's actions, `(slots, agents, ...)`."""
        codec = self._codecs[index]
        if not codec.plain:
            return None
        leaf = codec.leaves[0]
        columns: list[tuple[int, Array]] = []
        for position, agent in enumerate(group.agents):
            if agent not in actions and not acting[:, position].any():
                continue
            column = _fitting(actions.get(agent), leaf, acting[:, position])
            if column is None:
                return None
            columns.append((position, column))
        # In the space's own dtype, unless something would be lost.
        dtypes = [leaf.dtype, *(column.dtype for _, column in columns)]
        shape = (self._slots, len(group.agents), *leaf.shape)
        joined = np.zeros(shape, np.result_type(*dtypes))
        for position, column in columns:
            joined[:, position] = column
        return joined

    def apart(self, actions: Mapping[Any, Any]) -> list[dict[Any, Any]]:
        """One dict per env, of those whose action is not NaN."""
        counts = {len(values) for values in actions.values()}
        if counts != {self._slots}:
            raise SpaceMismatch(
                f"actions are for {sorted(counts)} envs; there are {self._slots}"
            )
        each: list[dict[Any, Any]] = []
        for slot in range(self._slots):
            own = {}
            for agent, values in actions.items():
                action: Any = values[slot]
                if np.isnan(action).all():
                    continue
                own[agent] = action if np.ndim(action) else int(action)
            each.append(own)
        return each


def _fitting(given: Any, leaf: Leaf, acting: Array) -> Array | None:
    """One agent's actions in every env; None unless all are as its space says."""
    array, shape = _numbers(given), (len(acting), *leaf.shape)
    if array is not None and not leaf.shape and array.shape == (*shape, 1):
        array = array[:, 0]  # a choice each, in an axis of its own
    if array is None or array.shape != shape:
        return None
    silent = _nan_rows(array)
    if silent is not None:
        if (silent & acting).any():
            return None
        array = np.where(_spread(silent, array.ndim), 0, array)
    if np.can_cast(array.dtype, leaf.dtype, "same_kind"):
        return array
    # Choices as floats: NaN among them made them so.
    whole = array.astype(leaf.dtype)
    return whole if np.array_equal(whole, array) else None


def _numbers(given: Any) -> Array | None:
    if given is None:
        return None
    if hasattr(given, "detach"):  # a tensor
        given = given.detach().cpu()
    array = np.asarray(given)
    return array if array.dtype.kind in "biuf" else None


def _nan_rows(given: Array) -> Array | None:
    """Where an env's action is nothing but NaN; None if there is no NaN."""
    if given.dtype.kind != "f":
        return None
    nan = np.isnan(given)
    if not nan.any():
        return None
    return np.asarray(nan.reshape(len(given), -1).all(axis=1))


def _spread(rows: Array, dimensions: int) -> Array:
    return rows.reshape(-1, *[1] * (dimensions - 1))
