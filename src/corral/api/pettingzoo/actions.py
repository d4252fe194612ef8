"""Actions of agents in any of three forms, converted to batches of groups.

    {"agent_0": (slots, ...), ...}       by agent
    {"agent": (slots, agents, ...)}      by group
    [{"agent_0": action, ...}, ...]      one dict per slot

In the first two, rows of agents that do not act are ignored, and an agent that acts in
no slot may be left out. A dict per slot has exactly the agents that act there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.engine.adapters.team import Agent, Group, Team, batched
from corral.engine.layout.codec import codec_for
from corral.engine.layout.contract import widened
from corral.errors import SpaceMismatch

Bools = NDArray[np.bool_]
# Group -> (slots, agents): which agents act.
Flags = Mapping[str, Bools]


class MultiActions:
    """Converts the caller's actions into one batch of the team's action space.

    Args:
        team: the agents.
        slots: number of slots.
        by: "agent" or "group": the meaning of a name that is both.
    """

    def __init__(self, team: Team, slots: int, by: str = "agent") -> None:
        self._team = team
        self._slots = slots
        self._by = by
        self._groups = {one.name: _GroupActions(one, slots) for one in team.groups}

    def batch(self, actions: Any, acting: Flags) -> dict[str, Any]:
        """The batch to send.

        Args:
            actions: in any of the forms above.
            acting: the agents that have to act.
        """
        if isinstance(actions, (list, tuple)):
            self._check_slots(actions, acting)
            return {name: one.gathered(actions) for name, one in self._groups.items()}
        if not isinstance(actions, Mapping):
            raise SpaceMismatch(
                f"actions is {type(actions).__name__}; pass a dict of agent -> one "
                f"action for each of the {self._slots} slots, or one dict per slot"
            )
        if not self._are_by_group(actions):
            self._check_known(actions, "actions")
            return {
                name: group.joined(actions, acting[name])
                for name, group in self._groups.items()
            }
        return {
            name: actions[name] if name in actions else group.joined({}, acting[name])
            for name, group in self._groups.items()
        }

    def _are_by_group(self, actions: Mapping[Any, Any]) -> bool:
        if not actions or not actions.keys() <= self._groups.keys():
            return False
        # A group of one agent may have the agent's name.
        return self._by == "group" or not actions.keys() <= self._team.place.keys()

    def _check_known(self, actions: Mapping[Any, Any], name: str) -> None:
        if not actions.keys() <= self._team.place.keys():
            strange = next(key for key in actions if key not in self._team.place)
            raise SpaceMismatch(
                f"{name} has an entry for {strange!r}; the agents are "
                f"{list(self._team.agents)}, in the groups {list(self._groups)}"
            )

    def _check_slots(self, actions: Sequence[Any], acting: Flags) -> None:
        """Check that each slot has the actions of exactly the agents that act there."""
        if len(actions) != self._slots:
            raise SpaceMismatch(
                f"{len(actions)} dicts of actions for {self._slots} slots; pass one "
                "for each slot"
            )
        for slot, given in enumerate(actions):
            name = f"actions[{slot}]"
            if not isinstance(given, Mapping):
                raise SpaceMismatch(
                    f"{name} is {type(given).__name__}; expected a dict of the actions "
                    f"in slot {slot}, by agent"
                )
            self._check_known(given, name)
            turn = [
                agent
                for agent, (group, position) in self._team.place.items()
                if acting[group.name][slot, position]
            ]
            for agent in turn:
                if agent not in given:
                    raise _missing(name, agent, slot)
            for agent in given:
                if agent not in turn:
                    raise SpaceMismatch(
                        f"{name} has an action for agent {agent!r}, which does not act "
                        f"in slot {slot}; it is the turn of {turn}"
                    )


def _missing(name: str, agent: Agent, slot: int) -> SpaceMismatch:
    return SpaceMismatch(
        f"{name} has no entry for agent {agent!r}, which has to act in slot {slot}"
    )


class _GroupActions:
    """The actions of one group, as arrays `(slots, agents, ...)`."""

    def __init__(self, group: Group, slots: int) -> None:
        self.group = group
        self._slots = slots
        self._codec = codec_for(group.action_space)
        self._join = codec_for(batched(group.action_space, len(group.agents)))
        self._shapes = [
            (slots, len(group.agents), *leaf.shape) for leaf in self._codec.leaves
        ]
        self._names = [f"actions[{agent!r}]" for agent in group.agents]

    def joined(self, actions: Mapping[Agent, Any], acting: Bools) -> Any:
        """The agents' arrays in one batch; zeros for agents that do not act."""
        batch = self._side_by_side(actions)
        if batch is not None:
            return batch
        given = []
        for position, agent in enumerate(self.group.agents):
            if agent in actions:
                leaves, _ = self._codec.split(
                    actions[agent], self._slots, self._names[position]
                )
                given.append((slice(None), position, leaves))
            elif acting[:, position].any():
                raise _missing("actions", agent, int(np.argmax(acting[:, position])))
        return self._placed(given)

    def _placed(self, given: Sequence[tuple[Any, int, list[NDArray[Any]]]]) -> Any:
        """Write leaves by slots and position into arrays of all agents."""
        arrays = []
        for index, (leaf, shape) in enumerate(
            zip(self._codec.leaves, self._shapes, strict=True)
        ):
            # In the space's own dtype, unless a value would change: see `Actions`.
            own = leaf.dtype
            fits = all(np.can_cast(one[index].dtype, own, "safe") for *_, one in given)
            arrays.append(array := np.zeros(shape, own if fits else widened(own)))
            for slots, position, leaves in given:
                array[slots, position] = leaves[index]
        return self._join.assemble(arrays, ())

    def _side_by_side(self, actions: Mapping[Agent, Any]) -> NDArray[Any] | None:
        """The fast path: every agent has one array of the right dtype and shape."""
        if len(self._shapes) != 1:
            return None
        dtype, shape = self._codec.leaves[0].dtype, self._shapes[0]
        batch = np.empty(shape, dtype)
        expected = (self._slots, *shape[2:])
        for position, agent in enumerate(self.group.agents):
            given = actions.get(agent)
            if (
                type(given) is not np.ndarray
                or given.dtype is not dtype
                or given.shape != expected
            ):
                return None
            batch[:, position] = given
        return batch

    def gathered(self, actions: Sequence[Mapping[Agent, Any]]) -> Any:
        """The batch from one dict per slot."""
        given = []
        for position, agent in enumerate(self.group.agents):
            slots = [slot for slot, values in enumerate(actions) if agent in values]
            if slots:
                values = [actions[slot][agent] for slot in slots]
                given.append((slots, position, self._leaves_of(values, slots, agent)))
        return self._placed(given)

    def _leaves_of(
        self, values: list[Any], slots: list[int], agent: Agent
    ) -> list[NDArray[Any]]:
        """One agent's actions in these slots."""
        try:
            return self._codec.split(values, len(slots), "actions")[0]
        except SpaceMismatch:
            for slot, value in zip(slots, values, strict=True):
                name = f"actions[{slot}][{agent!r}]"
                arrays = [
                    np.empty((1, 1, *leaf.shape), leaf.dtype)
                    for leaf in self._codec.leaves
                ]
                self._codec.encoder(arrays, name)(0, 0, value)
            raise
