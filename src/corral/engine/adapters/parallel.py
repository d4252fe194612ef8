"""A PettingZoo ParallelEnv as an Adapter: all living agents act at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from corral.engine.adapters.aec_to_parallel import without_detours
from corral.engine.adapters.multi_agent import Outcome, PettingZooAdapter, info_of
from corral.engine.adapters.roster import Seat, as_number, unseen
from corral.errors import SpaceMismatch

_TWO = "PettingZoo's API is `observations, infos = env.reset()`, a dict by agent each"
_FIVE = (
    "PettingZoo's API is `observations, rewards, terminations, truncations, infos = "
    "env.step(actions)`, a dict by agent each"
)

_NUMBERS = (float, int)
"""What a reward is as a rule, and can be stored as it is."""


class ParallelAdapter(PettingZooAdapter):
    """One ParallelEnv.

    An agent is alive if it is in `env.agents` and has neither been terminated nor
    truncated. The episode is over when nobody is.
    """

    turns = False

    def __init__(self, env: Any, state: bool = False) -> None:
        super().__init__(env, state)
        self.course = without_detours(env)

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        result = self.start(seed, options, task)
        observations, infos = two_dicts(result)
        roster = self.roster
        roster.begin(self.env.agents)
        for seat in roster.living:
            _see(seat, observations)
        return self.observed(), self._checked_infos(infos)

    def step(self, action: Any) -> Outcome:
        """Step the living, each with its own part of the action."""
        roster = self.roster
        result = self.course.step(roster.taken(action))
        try:
            observations, rewards, terminations, truncations, infos = result
            ends = any(terminations.values()) or any(truncations.values())
            observations.keys()  # what is no dict is told here
            paid = len(rewards.keys())
        except (AttributeError, TypeError, ValueError):
            five_dicts(result)
            raise
        if roster.leaving or roster.paid:
            roster.tidy()
        if ends or self.env.agents != roster.names or paid != len(roster.names):
            return self._changed(*result)
        return self.usual(observations, rewards, infos) or self._changed(*result)

    def usual(
        self,
        observations: Mapping[Any, Any],
        rewards: Mapping[Any, Any],
        infos: Mapping[Any, Any],
    ) -> Outcome | None:
        """As a rule nobody comes or goes; None if somebody was left out."""
        # All in one place: between two steps an env has thrown everything out of the
        # caches, and each function here is cold.
        total = 0.0
        for seat in self.roster.living:
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
        return self.observed(), total, False, False, kept

    def _changed(
        self,
        observations: Mapping[Any, Any],
        rewards: Mapping[Any, Any],
        terminations: Mapping[Any, Any],
        truncations: Mapping[Any, Any],
        infos: Mapping[Any, Any],
    ) -> Outcome:
        """The same for a step in which somebody came, left, or was left out."""
        roster = self.roster
        self._note_ends(terminations, truncations)
        for seat in roster.living:
            if seat.agent in observations:
                seat.observe(observations[seat.agent])
            else:
                self._unseen(seat, observations)
        total = roster.pay(rewards)
        self._reseat(observations, terminations, truncations)
        terminated, truncated = roster.how()
        return self.observed(), total, terminated, truncated, self._checked_infos(infos)

    def _note_ends(
        self, terminations: Mapping[Any, Any], truncations: Mapping[Any, Any]
    ) -> None:
        """Whose part is over."""
        for seat in self.roster.living:
            terminated = terminations.get(seat.agent, False)
            truncated = truncations.get(seat.agent, False)
            if terminated or truncated:
                self.roster.end(seat, terminated, truncated)

    def _unseen(self, seat: Seat, observations: Mapping[Any, Any]) -> None:
        """There is no observation of one that was alive: a dead one needs none."""
        if not seat.terminated[seat.position]:
            _see(seat, observations)
        seat.clear()

    def _reseat(
        self,
        observations: Mapping[Any, Any],
        terminations: Mapping[Any, Any],
        truncations: Mapping[Any, Any],
    ) -> None:
        """Somebody left, or came."""
        # Some envs go on listing those that are done, and say so again each time.
        present = [
            agent
            for agent in self.env.agents
            if not (terminations.get(agent) or truncations.get(agent))
        ]
        for seat in self.roster.seat(present):
            _see(seat, observations)

    def _checked_infos(self, infos: Any) -> dict[Any, Any]:
        """The infos of those who were told anything; masks go elsewhere."""
        if not isinstance(infos, Mapping):
            raise SpaceMismatch(
                f"the infos are {type(infos).__name__}; they must be a dict by agent, "
                "{} for those who are told nothing"
            )
        kept = {agent: info_of(agent, info) for agent, info in infos.items() if info}
        if kept or self.masking:
            self.without_masks(kept, self.roster.living)
        return kept


def two_dicts(result: Any) -> tuple[Any, ...]:
    """What `env.reset` returned, if it is what it should be."""
    return _dicts(result, 2, "env.reset()", _TWO)


def five_dicts(result: Any) -> tuple[Any, ...]:
    """The same for `env.step`."""
    return _dicts(result, 5, "env.step()", _FIVE)


def _dicts(result: Any, count: int, call: str, api: str) -> tuple[Any, ...]:
    parts = tuple(result) if isinstance(result, (tuple, list)) else ()
    if len(parts) != count or not all(isinstance(part, Mapping) for part in parts):
        raise SpaceMismatch(f"{call} returned {_kinds(result)}; {api}")
    return parts


def _kinds(result: Any) -> str:
    """What came back, by its types."""
    if not isinstance(result, tuple):
        return type(result).__name__
    return f"({', '.join(type(part).__name__ for part in result)})"


def _see(seat: Seat, observations: Mapping[Any, Any]) -> None:
    if seat.agent not in observations:
        raise unseen(seat.agent, observations)
    seat.observe(observations[seat.agent])
