"""The agents of a team that are alive, and their results, in arrays for the block.

A **seat** is one agent's place in its group's arrays. The arrays are the same all the
time: the recorder copies them after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.engine.adapters.team import STATE_KEY, Agent, Group, Team, packed
from corral.engine.layout.codec import codec_for
from corral.engine.tree import mapped
from corral.errors import SpaceMismatch, SpacesDiffer

_UNPAID = object()
"""The reward of an agent that was given none."""


class Seat:
    """One agent's cells."""

    __slots__ = (
        *("_cells", "_mask", "_masked", "acting", "agent", "alive", "observe"),
        *("position", "reward", "take", "terminated", "truncated"),
    )

    def __init__(self, group: Group, position: int, arrays: _Arrays) -> None:
        self.agent = agent = group.agents[position]
        self.position = position
        encode = arrays.codec.encoder(arrays.obs, f"obs[{agent!r}]")
        self.observe: Callable[[Any], Any] = partial(encode, 0, position)
        """Store what the agent sees."""
        name, pick = group.name, _picker(group.action_space, position)
        self.take: Callable[[Any], Any]
        """The agent's action, out of the env's."""
        if pick is None:
            self.take = lambda actions: actions[name][position]
        else:
            self.take = lambda actions: pick(actions[name])
        self.alive = arrays.flags["alive"]
        self.terminated = arrays.flags["terminated"]
        self.truncated = arrays.flags["truncated"]
        self.acting = arrays.flags.get("acting")
        self.reward = arrays.reward
        self._cells = [array[0, position : position + 1] for array in arrays.obs]
        self._mask = None if arrays.mask is None else arrays.mask[position]
        self._masked = False

    def clear(self) -> None:
        """Clear the agent's observation."""
        for cell in self._cells:
            cell.fill(0)

    def mask(self, given: Any) -> bool:
        """Store the action mask; False if the block has no place for it."""
        if self._mask is None:
            return False
        self._mask[:] = as_mask(given, len(self._mask), self.agent)
        self._masked = True
        return True

    def unmask(self) -> None:
        """Allow every action, as without a mask."""
        if self._masked and self._mask is not None:
            self._mask.fill(True)
            self._masked = False


class Roster:
    """A team's arrays, and the seats of the agents that are alive."""

    def __init__(self, team: Team, env: Any) -> None:
        self.team = team
        self._env = env
        self._spaces = {
            agent: (env.observation_space(agent), env.action_space(agent))
            for agent in team.agents
        }
        codec = packed(team.observation_space)
        self.buffer, leaves = codec.buffer()
        """What the env's observation is to the engine; the same object every time."""
        self.value: dict[str, Any] = codec.inner.assemble(leaves, ())
        """Its parts, `(1, ...)`."""
        arrays = [_Arrays(group, self.value[group.name]) for group in team.groups]
        if team.state_space is not None:
            state = codec_for(team.state_space)
            cells = [leaf[np.newaxis] for leaf in _leaves_of(self.value[STATE_KEY])]
            self._encode_state = state.encoder(cells, "state")
        self._plain_groups = {
            group.agents: group.name
            for group in team.groups
            if _picker(group.action_space, 0) is None
        }
        self.seats: dict[Agent, Seat] = {}
        for agent in team.agents:
            index, position = team.place[agent]
            self.seats[agent] = Seat(team.groups[index], position, arrays[index])
        self.living: list[Seat] = []
        self.names: list[Agent] = []
        """Of the living, as the env lists them."""
        self.leaving: list[Seat] = []
        """Those that ended in the last step."""
        self.paid: Iterable[Seat] = ()
        """Others that got a reward in the last step."""
        self._whole: str | None = None
        """The group that the living are, all of it and in its order."""

    def set_state(self, state: Any) -> None:
        """Store the state of the env as a whole."""
        self._encode_state(0, 0, state)

    def begin(self, agents: Iterable[Agent]) -> None:
        """An episode starts with these agents."""
        for seat in self.seats.values():
            seat.clear()
            seat.unmask()
            position = seat.position
            seat.reward[position] = 0.0
            seat.alive[position] = False
            seat.terminated[position] = seat.truncated[position] = False
            if seat.acting is not None:
                seat.acting[position] = False
        self.names, self.leaving, self.paid = [], [], ()
        self.seat(agents)
        if not self.living:
            raise nobody_there()

    def seat(self, agents: Iterable[Agent]) -> list[Seat]:
        """Set the agents that are alive; return those that were not before."""
        before = set(self.names)
        living: list[Seat] = []
        new: list[Seat] = []
        for agent in agents:
            seat = self.seat_of(agent)
            if agent not in before:
                self._check_spaces(seat)
                new.append(seat)
            living.append(seat)
        self.living, self.names = living, [seat.agent for seat in living]
        self._whole = self._plain_groups.get(tuple(self.names))
        for seat in new:
            seat.alive[seat.position] = True
        for gone in before.difference(self.names):
            seat = self.seats[gone]
            if seat not in self.leaving:
                raise gone_without_end(gone)
            seat.alive[seat.position] = False
            seat.unmask()
        return new

    def taken(self, actions: Any) -> dict[Agent, Any]:
        """The actions of the living, in the order the env lists them in."""
        if self._whole is not None:
            # Not strict: the keyword doubles the cost, and no length is in doubt.
            return dict(zip(self.names, actions[self._whole]))  # noqa: B905
        return {seat.agent: seat.take(actions) for seat in self.living}

    def tidy(self) -> None:
        """Clear what belongs to the last step alone: ends, and rewards of others."""
        for seat in self.leaving:
            position = seat.position
            seat.terminated[position] = seat.truncated[position] = False
            seat.reward[position] = 0.0
            if not seat.alive[position]:
                seat.clear()
        for seat in self.paid:
            seat.reward[seat.position] = 0.0
        self.leaving, self.paid = [], ()

    def pay(self, rewards: Mapping[Agent, Any]) -> float:
        """Store the rewards of a step; returns their sum."""
        total, paid = 0.0, 0
        for seat in self.living:
            value = rewards.get(seat.agent, _UNPAID)
            if value is _UNPAID:
                value = 0.0
            else:
                paid += 1
                if type(value) is not float:
                    value = as_number(value, seat.agent)
            seat.reward[seat.position] = value
            total += value
        if paid < len(rewards):  # an agent that is no longer alive, or not yet
            total += self._pay_others(rewards)
        return total

    def _pay_others(self, rewards: Mapping[Agent, Any]) -> float:
        total, living = 0.0, set(self.names)
        others = []
        for agent, reward in rewards.items():
            if agent in living:
                continue
            seat = self.seat_of(agent)
            value = as_number(reward, agent)
            seat.reward[seat.position] = value
            others.append(seat)
            total += value
        self.paid = others
        return total

    def end(self, seat: Seat, terminated: Any, truncated: Any) -> None:
        """The agent's episode is over."""
        seat.terminated[seat.position] = bool(terminated)
        seat.truncated[seat.position] = bool(truncated)
        self.leaving.append(seat)

    def how(self) -> tuple[bool, bool]:
        """Whether the env is at its end: terminated, truncated.

        It is truncated if one of the agents that left last was truncated and not also
        terminated: its episode could have gone on.
        """
        if self.living:
            return False, False
        truncated = any(
            seat.truncated[seat.position] and not seat.terminated[seat.position]
            for seat in self.leaving
        )
        return not truncated, truncated

    def seat_of(self, agent: Agent) -> Seat:
        """The agent's seat; an error names one that has none."""
        seat = self.seats.get(agent)
        if seat is None:
            raise self.unknown(agent)
        return seat

    def unknown(self, agent: Agent) -> SpacesDiffer:
        """The error for an agent that has no seat."""
        return unknown_agent(agent, self.team.agents)

    def _check_spaces(self, seat: Seat) -> None:
        """Refuse an agent whose spaces have changed since the block was laid out."""
        agent = seat.agent
        group, known = self.team.group_of(agent), self._spaces[agent]
        for name, now, before in (
            ("observation_space", self._env.observation_space(agent), known[0]),
            ("action_space", self._env.action_space(agent), known[1]),
        ):
            # As a rule it is the same object; comparing two Boxes takes 60 µs.
            if now is not before and now != getattr(group, name):
                raise SpacesDiffer(
                    f"agent {agent!r} has another {name.replace('_', ' ')} than when "
                    f"the env was built: {now} instead of {before}"
                )


class _Arrays:
    """A group's part of the buffer, one row per agent."""

    def __init__(self, group: Group, value: dict[str, Any]) -> None:
        self.codec = codec_for(group.observation_space)
        self.obs = _leaves_of(value["obs"])
        # A memoryview stores a scalar in a quarter of the time an array takes.
        names = ("alive", "acting", "terminated", "truncated")
        self.flags = {name: value[name][0].data for name in names if name in value}
        self.reward = value["reward"][0].data
        self.mask = value["mask"][0] if "mask" in value else None
        if self.mask is not None:
            self.mask.fill(True)


def _leaves_of(value: Any) -> list[NDArray[Any]]:
    """The arrays of nested dicts and tuples, in a codec's order."""
    leaves: list[NDArray[Any]] = []
    mapped(leaves.append, value)
    return leaves


def alive(
    agents: Iterable[Agent],
    terminations: Mapping[Any, Any],
    truncations: Mapping[Any, Any],
) -> list[Agent]:
    """Those of the agents that an env lists that have not ended."""
    return [
        agent
        for agent in agents
        if not (terminations.get(agent) or truncations.get(agent))
    ]


def nobody_there() -> SpaceMismatch:
    """The error for an episode without agents."""
    return SpaceMismatch("env.reset() left no agents in env.agents")


def unknown_agent(agent: Agent, agents: Iterable[Agent]) -> SpacesDiffer:
    """The error for an agent that is none of these."""
    return SpacesDiffer(
        f"agent {agent!r} is not one of possible_agents, which were {list(agents)} "
        "when the env was built"
    )


def gone_without_end(agent: Agent) -> SpaceMismatch:
    """The error for an agent that is missing without an end."""
    return SpaceMismatch(
        f"agent {agent!r} is gone from env.agents, but was neither terminated nor "
        "truncated"
    )


def unseen(agent: Agent, observations: Mapping[Agent, Any]) -> SpaceMismatch:
    """The error for an agent without an observation."""
    return SpaceMismatch(
        f"there is no observation for agent {agent!r}, only for {list(observations)}"
    )


def as_number(reward: Any, agent: Agent) -> float:
    """A reward as a float; PettingZoo's envs give all kinds of numbers."""
    try:
        return float(reward.item() if isinstance(reward, np.ndarray) else reward)
    except (TypeError, ValueError):
        raise SpaceMismatch(
            f"agent {agent!r} got the reward {reward!r:.80}; it must be one number"
        ) from None


def as_mask(given: Any, size: int, agent: Agent) -> NDArray[Any]:
    """Which actions are allowed, one entry for each.

    Gymnasium has a tuple of masks for a MultiDiscrete; here they are end to end.
    """
    several = isinstance(given, tuple) and len(given) > 0
    values = np.concatenate(given, axis=None) if several else np.asarray(given)
    if values.shape != (size,):
        raise SpaceMismatch(
            f"agent {agent!r} has an action mask of shape {values.shape}; its action "
            f"space asks for {(size,)}"
        )
    return values


def _picker(space: Any, position: int) -> Callable[[Any], Any] | None:
    """One agent's part of a Dict or Tuple of batches; None for plain arrays."""
    if isinstance(space, spaces.Dict):
        members = {k: _part(part, position) for k, part in space.items()}
        return lambda batch: {k: pick(batch[k]) for k, pick in members.items()}
    if isinstance(space, spaces.Tuple):
        parts = [_part(part, position) for part in space]
        return lambda batch: tuple(
            pick(one) for pick, one in zip(parts, batch, strict=True)
        )
    return None


def _part(space: Any, position: int) -> Callable[[Any], Any]:
    return _picker(space, position) or (lambda batch: batch[position])
