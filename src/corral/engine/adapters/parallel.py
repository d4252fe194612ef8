"""A PettingZoo ParallelEnv as an Adapter: all living agents act at once.

ParallelAdapter    the agents are those in `env.agents`, as PettingZoo has it
ReturnsAdapter     the agents are those that the env returns something for: AgileRL
                   goes by the dicts that an env returns, so that agents may come
                   and go between steps without an end, and envs need no `agents`.
                   An episode is over when all agents that were returned are done
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, ClassVar

import numpy as np

from corral.engine.adapters.multi_agent import Outcome, PettingZooAdapter, info_of
from corral.engine.adapters.roster import Seat, alive, as_number
from corral.engine.adapters.team import MASK_KEY, Agent
from corral.errors import SpaceMismatch

Table = Mapping[Any, Any]
_TWO = "observations, infos"
_FIVE = "observations, rewards, terminations, truncations, infos"
# What a reward is as a rule, and can be stored as it is.
_NUMBERS = (float, int)


class ParallelAdapter(PettingZooAdapter):
    """One ParallelEnv.

    An agent is alive if it is in `env.agents` and has neither been terminated nor
    truncated. The episode is over when no agent is.
    """

    turns = False
    # Whether `env.agents` says which agents are alive, or what the env returns.
    lists_agents: ClassVar[bool] = True

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]:
        return self.begun(self.begin(self.course.reset, seed, options, task))

    def begun(self, result: Any) -> tuple[Any, dict[str, Any]]:
        """Store what the env's `reset` returned."""
        observations, infos = _dicts(result, "reset", _TWO)
        self.roster.begin(self.env.agents if self.lists_agents else observations)
        for seat in self.roster.living:
            _see(seat, observations)
        return self.observed(), self._checked_infos(infos)

    def step(self, action: Any) -> Outcome:
        """Step the living agents, each with its own part of the action."""
        return self.outcome(self.course.step(self.roster.taken(action)))

    def outcome(self, result: Any) -> Outcome:
        """Store what the env's `step` returned."""
        roster = self.roster
        try:
            observations, rewards, terminations, truncations, infos = result
            ends = any(terminations.values()) or any(truncations.values())
            observations.keys()  # raises here for what is not a dict
            paid = len(rewards.keys())
        except (AttributeError, TypeError, ValueError):
            _dicts(result, "step", _FIVE)
            raise
        if roster.leaving or roster.paid:
            roster.tidy()
        agents = self.env.agents if self.lists_agents else list(observations)
        if ends or paid != len(roster.names) or agents != roster.names:
            return self._changed(result)
        return self.usual(observations, rewards, infos) or self._changed(result)

    def usual(
        self, observations: Table, rewards: Table, infos: Table
    ) -> Outcome | None:
        """The usual step, in which no agent comes or goes; None if one was left out."""
        # All in one function: between two steps the env has evicted everything from the
        # caches, and each function called here is cold.
        total, roster = 0.0, self.roster
        for seat in roster.living:
            agent = seat.agent
            if agent not in observations or agent not in rewards:
                return None
            seat.observe(observations[agent])
            reward = rewards[agent]
            if type(reward) not in _NUMBERS:
                reward = as_number(reward, agent)
            seat.reward[seat.position] = reward
            total += reward
        quiet = not self.masking and type(infos) is dict and not any(infos.values())
        kept = {} if quiet else self._checked_infos(infos)
        obs = roster.buffer if self.team.state_space is None else self.observed()
        return obs, total, False, False, kept

    def _changed(self, result: Any) -> Outcome:
        """The same for a step in which an agent came, left, or was left out."""
        observations, rewards, terminations, truncations, infos = result
        roster = self.roster
        for seat in roster.living:
            terminated = terminations.get(seat.agent, False)
            truncated = truncations.get(seat.agent, False)
            if terminated or truncated:
                roster.end(seat, terminated, truncated)
        for seat in roster.living:
            # An agent that was terminated needs no observation.
            if seat.agent in observations or not seat.terminated[seat.position]:
                _see(seat, observations)
            else:
                seat.clear()
        total = roster.pay(rewards)
        # Some envs still list agents that are done, and end them again each time.
        for seat in roster.seat(alive(self.env.agents, terminations, truncations)):
            _see(seat, observations)
        terminated, truncated = roster.how()
        return self.observed(), total, terminated, truncated, self._checked_infos(infos)

    def _checked_infos(self, infos: Any) -> dict[Any, Any]:
        """The infos that are not empty, without their masks."""
        if not isinstance(infos, Mapping):
            raise SpaceMismatch(
                f"the infos are {type(infos).__name__}; they must be a dict by agent, "
                "with {} for an agent without info"
            )
        kept = {agent: info_of(agent, info) for agent, info in infos.items() if info}
        if kept or self.masking:
            self.without_masks(kept, self.roster.living)
        return kept


def _dicts(result: Any, method: str, api: str) -> tuple[Any, ...]:
    """The dicts that a method of the env returned, as many as PettingZoo's API has."""
    parts = tuple(result) if isinstance(result, (tuple, list)) else ()
    expected = api.count(",") + 1
    if len(parts) == expected and all(isinstance(part, Mapping) for part in parts):
        return parts
    found = type(result).__name__
    if isinstance(result, tuple):
        found = f"({', '.join(type(part).__name__ for part in result)})"
    raise SpaceMismatch(
        f"env.{method}() returned {found}; PettingZoo's API is `{api} = env.{method}"
        f"({'actions' if method == 'step' else ''})`, a dict by agent each"
    )


def _see(seat: Seat, observations: Table) -> None:
    if seat.agent not in observations:
        raise SpaceMismatch(
            f"there is no observation for agent {seat.agent!r}, only for "
            f"{list(observations)}"
        )
    seat.observe(observations[seat.agent])


# Agents that the env returns ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RawActions:
    """Actions that go to one env exactly as they are, also if they fit no space."""

    actions: dict[Agent, Any]


class ReturnsAdapter(ParallelAdapter):
    """One ParallelEnv, as AgileRL's workers treat it."""

    lists_agents = False

    def step(self, action: Any) -> Outcome:
        """Step with the actions of the living, or with what was sent raw."""
        raw = isinstance(action, RawActions)
        taken = action.actions if raw else self.roster.taken(action)
        actions = {agent: _bare(one) for agent, one in taken.items()}
        return self.outcome(self.course.step(actions))

    def usual(
        self, observations: Table, rewards: Table, infos: Table
    ) -> Outcome | None:
        """None also while an agent is away, whose reward has to be marked."""
        roster = self.roster
        if len(roster.names) < len(roster.seats):
            return None
        return super().usual(observations, rewards, infos)

    def _changed(self, result: Any) -> Outcome:
        """The same for a step in which an agent came, left, or was left out."""
        observations, rewards, terminations, truncations, infos = result
        roster = self.roster
        total = roster.pay(rewards)
        for agent, seat in roster.seats.items():
            if agent not in rewards:
                seat.reward[seat.position] = nan  # as AgileRL marks it
        present = []
        for agent in dict.fromkeys((*observations, *terminations)):
            terminated, truncated = terminations.get(agent), truncations.get(agent)
            if terminated or truncated:
                roster.end(roster.seat_of(agent), terminated, truncated)
            elif agent in observations:
                present.append(agent)
        for seat in roster.living:
            if seat.agent not in observations:
                seat.clear()
                if seat not in roster.leaving:  # away for now, without an end
                    roster.end(seat, False, False)
        for agent, observation in observations.items():
            roster.seat_of(agent).observe(observation)
        roster.seat(present)
        over, cut = roster.how()
        return self.observed(), total, over, cut, self._checked_infos(infos)

    def without_masks(self, infos: dict[Any, Any], seats: Sequence[Seat]) -> None:
        """Keep masks in the arrays, and where AgileRL's algorithms look for them."""
        for seat in seats:
            info = infos.get(seat.agent)
            if info is not None and MASK_KEY in info:
                seat.mask(info[MASK_KEY])
                self.masking = True
            else:
                seat.unmask()


def _bare(action: Any) -> Any:
    """As AgileRL hands it on: axes of one entry are dropped, numbers are plain."""
    number = isinstance(action, (int, np.integer))
    return int(action) if number else np.array(action).squeeze()
