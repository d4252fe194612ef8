"""A PettingZoo AECEnv as an Adapter: one step is one living agent's turn.

    env.step(action of agent_selection)      the turn; rewards of it, for all agents
    env.step(None) ...                       for every agent that is dead, here
    env.observe(agent_selection)             whose turn it is now

The adapter observes only the agent that acts now, as `env.last()` does, or with
observe="all" every agent that is alive; and each agent that has ended, once more. Infos
are those of the same agents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corral.engine.adapters.multi_agent import Outcome, PettingZooAdapter, info_of
from corral.engine.adapters.pettingzoo_wrappers import (
    TABLES,
    PassThroughLayers,
    keeper_of,
)
from corral.engine.adapters.roster import Seat, alive
from corral.engine.layout.info_copy import owned_info
from corral.errors import SpaceMismatch


class AecAdapter(PettingZooAdapter):
    """One AECEnv. The episode is over when no agent is alive."""

    turns = True

    # The layer whose tables are read.
    _keeper: Any
    # The layers around it.
    _passage: PassThroughLayers
    _acting: Seat | None = None
    # The living agents whose observations are in the arrays.
    _shown: list[Seat]
    # The infos of agents that have just ended; the env forgets them.
    _last_words: dict[Any, Any]

    def reset(
        self, seed: int | None, options: dict[str, Any] | None, task: Any
    ) -> tuple[Any, dict[str, Any]]:
        self.begin(self.env.reset, seed, options, task)
        try:
            self._keeper, self._passage = keeper_of(self.env)
            self.roster.begin(self._keeper.agents)
            self._acting, self._shown, self._last_words = None, [], {}
            acting = self._next()
            if acting is None:
                raise SpaceMismatch("env.reset() left no agent that could act")
            self._give_turn(acting)
            return self.observed(), self._infos_of_agents()
        except (AttributeError, TypeError):
            self._check_tables()
            raise

    def step(self, action: Any) -> Outcome:
        """Let the agent whose turn it is act with its part of the action."""
        roster, acting = self.roster, self._acting
        assert acting is not None, "no agent has the turn"
        roster.tidy()
        self._last_words = {}
        self.env.step(acting.take(action))
        try:
            if not self._passage.stands():  # a layer was patched or exchanged
                self._keeper, self._passage = keeper_of(self.env)
            total = roster.pay(self._keeper.rewards)
            self._give_turn(self._next())
            ends = roster.how()
            return self.observed(), total, *ends, self._infos_of_agents()
        except (AttributeError, TypeError):
            self._check_tables()
            raise

    def _check_tables(self) -> None:
        """After an error: raise if the env's tables are not what they should be."""
        agent = getattr(self.env, "agent_selection", None)
        for name in sorted(TABLES - {"agent_selection"}):
            table, listed = getattr(self.env, name), name == "agents"
            if not isinstance(table, Sequence if listed else Mapping):
                what = "a list of agents" if listed else "a dict by agent"
                raise SpaceMismatch(
                    f"env.{name} is {table!r:.80} with agent {agent!r} to act; "
                    f"PettingZoo's API is {what}"
                )

    def _next(self) -> Seat | None:
        """The agent that acts next; dead agents before it are stepped with None."""
        keeper, roster = self._keeper, self.roster
        # Bounded, for an env that keeps selecting a dead agent.
        for _ in range(4 * len(roster.seats)):
            agents = keeper.agents
            self._note_ends(agents, keeper.terminations, keeper.truncations)
            if not agents:
                return None
            selected = keeper.agent_selection
            if selected in roster.names:
                return roster.seats[selected]
            roster.seat_of(selected)  # raises for an agent that is not known
            self.env.step(None)
        raise SpaceMismatch(
            "env.step(None) was called for dead agents, and the dead agent "
            f"{keeper.agent_selection!r} is still selected; call _was_dead_step in "
            "env.step"
        )

    def _note_ends(
        self,
        agents: list[Any],
        terminations: Mapping[Any, bool],
        truncations: Mapping[Any, bool],
    ) -> None:
        """Take in the agents that have ended or come since."""
        roster = self.roster
        for seat in roster.living:
            agent = seat.agent
            terminated = terminations.get(agent, False)
            truncated = truncations.get(agent, False)
            if terminated or truncated:
                roster.end(seat, terminated, truncated)
                seat.observe(self.env.observe(agent))
                info = self._keeper.infos.get(agent)
                if info:
                    # The steps of the dead that follow may clear it.
                    self._last_words[agent] = owned_info(info_of(agent, info))
        present = alive(agents, terminations, truncations)
        if present != roster.names:
            roster.seat(present)

    def _give_turn(self, acting: Seat | None) -> None:
        """Let this agent act next, with an observation."""
        before, self._acting = self._acting, acting
        if before is not None:
            before.acting[before.position] = False
        chosen: list[Seat] = []
        if acting is not None:
            acting.acting[acting.position] = True
            chosen = self.roster.living if self.observe == "all" else [acting]
        for seat in self._shown:
            # The last observation of an agent that has just left stays for one step.
            if seat not in chosen and seat not in self.roster.leaving:
                seat.clear()
                seat.unmask()
        for seat in chosen:
            seat.observe(self.env.observe(seat.agent))
        self._shown = list(chosen)

    def _infos_of_agents(self) -> dict[Any, Any]:
        """The infos of the observed agents, without their masks."""
        infos, shown = self._keeper.infos, self._last_words
        for seat in self._shown:
            info = infos.get(seat.agent)
            if info:
                shown[seat.agent] = info_of(seat.agent, info)
        self.without_masks(shown, self._shown)
        return shown
