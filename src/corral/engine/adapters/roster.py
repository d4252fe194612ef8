"""The agents of a team that are alive, and their results, in arrays for the block.

A **seat** is one agent's place in its group's arrays. The arrays are the same all the
time: the recorder copies them after each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.engine.adapters.team import STATE_KEY, Agent, Group, Team, packed
from corral.engine.layout.codec import codec_for
from corral.engine.tree import mapped
from corral.errors import SpaceMismatch, SpacesDiffer


class Seat:
    """One agent's cells: entry `position` of its group's flags and rewards."""

    def __init__(self, group: Group, position: int, arrays: dict[str, Any]) -> None:
        self.agent = agent = group.agents[position]
        self.position = position
        leaves = _leaves_of(arrays["obs"])
        encode = codec_for(group.observation_space).encoder(leaves, f"obs[{agent!r}]")
        # Store what the agent sees.
        self.observe: Callable[[Any], Any] = partial(encode, 0, position)
        self._group, self._own_part = group.name, itemgetter(position)
        # A memoryview stores a scalar in a quarter of the time an array takes.
        self.alive = arrays["alive"][0].data
        self.terminated = arrays["terminated"][0].data
        self.truncated = arrays["truncated"][0].data
        self.reward = arrays["reward"][0].data
        self.acting = arrays.get("acting", np.empty_like(arrays["alive"]))[0].data
        self._cells = [leaf[0, position : position + 1] for leaf in leaves]
        self._mask = arrays["mask"][0, position] if "mask" in arrays else None
        self._masked = True

    def take(self, actions: Any) -> Any:
        """The agent's action, out of the env's."""
        return mapped(self._own_part, actions[self._group])

    def begin(self) -> None:
        """Clear every cell, for an episode."""
        self.clear()
        self.unmask()
        self.reward[self.position] = 0.0
        for flags in (self.alive, self.acting, self.terminated, self.truncated):
            flags[self.position] = False

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
        # What the env's observation is to the engine; the same object every time.
        self.buffer, leaves = codec.buffer()
        # Its parts, `(1, ...)`.
        self.value: dict[str, Any] = codec.inner.assemble(leaves, ())
        if team.state_space is not None:
            cells = [leaf[np.newaxis] for leaf in _leaves_of(self.value[STATE_KEY])]
            state = codec_for(team.state_space).encoder(cells, "state")
            # Store the state of the env as a whole.
            self.set_state: Callable[[Any], Any] = partial(state, 0, 0)
        self._plain_groups = {
            group.agents: group.name
            for group in team.groups
            if not isinstance(group.action_space, (spaces.Dict, spaces.Tuple))
        }
        self.seats: dict[Agent, Seat] = {}
        for agent in team.agents:
            group, position = team.place[agent]
            self.seats[agent] = Seat(group, position, self.value[group.name])
        self.living: list[Seat] = []
        # Of the living, as the env lists them.
        self.names: list[Agent] = []
        # Those that ended in the last step.
        self.leaving: list[Seat] = []
        # Others that got a reward in the last step.
        self.paid: list[Seat] = []
        # The group that the living are, all of it and in its order.
        self._whole: str | None = None

    def begin(self, agents: Iterable[Agent]) -> None:
        """An episode starts with these agents."""
        for seat in self.seats.values():
            seat.begin()
        self.names, self.leaving, self.paid = [], [], []
        self.seat(agents)
        if not self.living:
            raise SpaceMismatch("env.reset() left no agents in env.agents")

    def seat(self, agents: Iterable[Agent]) -> list[Seat]:
        """Set the agents that are alive; return those that were not before."""
        before = set(self.names)
        self.living = [self.seat_of(agent) for agent in agents]
        self.names = [seat.agent for seat in self.living]
        self._whole = self._plain_groups.get(tuple(self.names))
        new = [seat for seat in self.living if seat.agent not in before]
        for seat in new:
            self._check_spaces(seat.agent)
            seat.alive[seat.position] = True
        for gone in before.difference(self.names):
            seat = self.seats[gone]
            if seat not in self.leaving:
                raise SpaceMismatch(
                    f"agent {gone!r} is gone from env.agents, but was neither "
                    "terminated nor truncated"
                )
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
            if not seat.alive[position]:
                seat.clear()
        for seat in (*self.leaving, *self.paid):
            seat.reward[seat.position] = 0.0
        self.leaving, self.paid = [], []

    def pay(self, rewards: Mapping[Agent, Any]) -> float:
        """Store the rewards of a step; returns their sum."""
        total, living = 0.0, set(self.names)
        # Agents that are no longer alive, or not yet.
        self.paid = [self.seat_of(agent) for agent in rewards if agent not in living]
        for seat in (*self.living, *self.paid):
            reward = rewards.get(seat.agent, 0.0)
            if type(reward) is not float:
                reward = as_number(reward, seat.agent)
            seat.reward[seat.position] = reward
            total += reward
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
            raise SpacesDiffer(
                f"agent {agent!r} is not one of possible_agents, which were "
                f"{list(self.team.agents)} when the env was built"
            )
        return seat

    def _check_spaces(self, agent: Agent) -> None:
        """Refuse an agent whose spaces have changed since the block was laid out."""
        for kind, before in zip(
            ("observation", "action"), self._spaces[agent], strict=True
        ):
            now = getattr(self._env, f"{kind}_space")(agent)
            # As a rule it is the same object; comparing two Boxes takes 60 µs.
            if now is not before and now != before:
                raise SpacesDiffer(
                    f"agent {agent!r} has another {kind} space than when the env was "
                    f"built: {now} instead of {before}"
                )


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
