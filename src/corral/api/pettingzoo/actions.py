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
from corral.engine.layout.casts import widened
from corral.engine.layout.codec import codec_for
from corral.errors import SpaceMismatch

Flags = Mapping[str, NDArray[np.bool_]]
"""Group -> (slots, agents): which agents act, or are alive."""


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
        self._parts = [_GroupActions(group, slots) for group in team.groups]
        self._by_name = {part.group.name: part for part in self._parts}

    def batch(self, actions: Any, acting: Flags, alive: Flags) -> dict[str, Any]:
        """The batch to send.

        Args:
            actions: in any of the forms above.
            acting: the agents that have to act.
            alive: the agents that are alive; some may wait for their turn.
        """
        if isinstance(actions, Mapping):
            if self._are_by_group(actions):
                return self._by_groups(actions, acting)
            return self._by_agents(actions, acting)
        if isinstance(actions, (list, tuple)):
            return self._by_slots(actions, acting, alive)
        raise SpaceMismatch(
            f"actions is {type(actions).__name__}; pass a dict of agent -> one action "
            f"for each of the {self._slots} slots, or one dict per slot"
        )

    def _are_by_group(self, actions: Mapping[Any, Any]) -> bool:
        if not actions or not all(key in self._by_name for key in actions):
            return False
        # A group of one agent may have the agent's name.
        return self._by == "group" or any(
            key not in self._team.place for key in actions
        )

    def _by_groups(self, actions: Mapping[Any, Any], acting: Flags) -> dict[str, Any]:
        """The batch to send, of actions by group."""
        for name in self._by_name:
            if name not in actions and acting[name].any():
                slot, position = np.argwhere(acting[name])[0].tolist()
                agent = self._by_name[name].group.agents[position]
                raise SpaceMismatch(
                    f"actions has no entry for group {name!r}, whose agent {agent!r} "
                    f"has to act in slot {slot}"
                )
        return {
            name: actions[name] if name in actions else part.nothing()
            for name, part in self._by_name.items()
        }

    def _by_agents(self, actions: Mapping[Any, Any], acting: Flags) -> dict[str, Any]:
        given = 0
        batch = {}
        for part in self._parts:
            batch[part.group.name], found = part.joined(actions, acting)
            given += found
        if given < len(actions):
            self._refuse_strange(actions, "actions")
        return batch

    def _refuse_strange(self, actions: Mapping[Any, Any], name: str) -> None:
        for key in actions:
            if key not in self._team.place:
                raise SpaceMismatch(
                    f"{name} has an entry for {key!r}; the agents are "
                    f"{list(self._team.agents)}, in the groups {list(self._by_name)}"
                )

    def _by_slots(
        self, actions: Sequence[Any], acting: Flags, alive: Flags
    ) -> dict[str, Any]:
        if len(actions) != self._slots:
            raise SpaceMismatch(
                f"{len(actions)} dicts of actions for {self._slots} slots; pass one "
                "for each slot"
            )
        for slot, given in enumerate(actions):
            if not isinstance(given, Mapping):
                raise SpaceMismatch(
                    f"actions[{slot}] is {type(given).__name__}; expected a dict of "
                    f"the actions in slot {slot}, by agent"
                )
            self._refuse_strange(given, f"actions[{slot}]")
            self._check_slot(slot, given, acting, alive)
        return {part.group.name: part.gathered(actions) for part in self._parts}

    def _check_slot(
        self, slot: int, given: Mapping[Agent, Any], acting: Flags, alive: Flags
    ) -> None:
        """Check that exactly the agents that act in this slot have an action."""
        for agent, (group, position) in self._team.place.items():
            name = group.name
            acts = acting[name][slot, position]
            if acts and agent not in given:
                raise SpaceMismatch(
                    f"actions[{slot}] has no action for agent {agent!r}, which has to "
                    f"act in slot {slot}"
                )
            if not acts and agent in given:
                raise SpaceMismatch(
                    f"actions[{slot}] has an action for agent {agent!r}, "
                    + self._why_not(slot, acting, alive[name][slot, position])
                )

    def _why_not(self, slot: int, acting: Flags, alive: bool) -> str:
        if not alive:
            return f"which is not alive in slot {slot}"
        turn = [
            agent
            for agent, (group, position) in self._team.place.items()
            if acting[group.name][slot, position]
        ]
        return f"but in slot {slot} it is the turn of {turn[0]!r}"


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

    def nothing(self) -> Any:
        """Zeros, for agents that do not act."""
        return self._assembled([leaf.dtype for leaf in self._codec.leaves])[0]

    def _assembled(self, dtypes: list[np.dtype[Any]]) -> tuple[Any, list[NDArray[Any]]]:
        arrays = [
            np.zeros(shape, dtype)
            for shape, dtype in zip(self._shapes, dtypes, strict=True)
        ]
        return self._join.assemble(arrays, ()), arrays

    def joined(self, actions: Mapping[Agent, Any], acting: Flags) -> tuple[Any, int]:
        """The agents' arrays in one batch, and the number of agents in `actions`."""
        batch = self._side_by_side(actions)
        if batch is not None:
            return batch, len(self.group.agents)
        given = []
        for position, agent in enumerate(self.group.agents):
            if agent in actions:
                leaves, _ = self._codec.split(
                    actions[agent], self._slots, self._names[position]
                )
                given.append((slice(None), position, leaves))
            else:
                self._check_idle(position, acting)
        return self._placed(given), len(given)

    def _placed(self, given: Sequence[tuple[Any, int, list[NDArray[Any]]]]) -> Any:
        """Write leaves by slots and position into arrays of all agents."""
        # In the space's own dtypes, unless a value would change: see `Actions`.
        dtypes = [
            _dtype_for(leaf.dtype, [leaves[index].dtype for _, _, leaves in given])
            for index, leaf in enumerate(self._codec.leaves)
        ]
        batch, arrays = self._assembled(dtypes)
        for slots, position, leaves in given:
            for array, leaf in zip(arrays, leaves, strict=True):
                array[slots, position] = leaf
        return batch

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

    def _check_idle(self, position: int, acting: Flags) -> None:
        waiting = acting[self.group.name][:, position]
        if waiting.any():
            raise SpaceMismatch(
                f"actions has no entry for agent {self.group.agents[position]!r}, "
                f"which has to act in slot {int(np.argmax(waiting))}"
            )

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


def _dtype_for(own: np.dtype[Any], given: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    for dtype in given:
        if dtype is not own and not np.can_cast(dtype, own, "safe"):
            return widened(own)
    return own
