"""A ParallelEnv whose agents are those it returns something for.

PettingZoo lists the agents in `env.agents`. AgileRL goes by the dicts that an env
returns, so that agents may come and go between steps without an end, and envs need no
`agents`. An episode is over when all agents that were returned are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np

from corral.engine.adapters.multi_agent import Outcome
from corral.engine.adapters.parallel import ParallelAdapter, Table
from corral.engine.adapters.roster import Seat
from corral.engine.adapters.team import MASK_KEY, Agent


@dataclass(frozen=True, slots=True)
class RawActions:
    """Actions that go to one env exactly as they are, also if they fit no space."""

    actions: dict[Agent, Any]


class ReturnsAdapter(ParallelAdapter):
    """One ParallelEnv, as AgileRL's workers treat it."""

    def _present(self, observations: Table) -> Iterable[Agent]:
        return observations

    def step(self, action: Any) -> Outcome:
        """Step with the actions of the living, or with what was sent raw."""
        raw = isinstance(action, RawActions)
        taken = action.actions if raw else self.roster.taken(action)
        actions = {agent: _bare(one) for agent, one in taken.items()}
        return self.outcome(self.course.step(actions))

    def _unchanged(self, observations: Table) -> bool:
        roster = self.roster
        everyone = len(roster.names) == len(roster.seats)
        return everyone and list(observations) == roster.names

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
    if isinstance(action, (int, np.integer)):
        return int(action)
    return np.array(action).squeeze()
