"""Environments with several agents, who come and go; in PettingZoo's two ways.

What they return depends on the seed and the actions alone, as with the others.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from tests.soak.programs.digests import digest
from tests.soak.programs.infos import STYLES, Keeper
from tests.soak.programs.kinds import Kind
from tests.soak.programs.shapes import sampled

EYES, HANDS = ("eye_0", "eye_1", "eye_2"), ("hand_0", "hand_1")
OBSERVATION_SPACES: dict[str, spaces.Space[Any]] = {
    "eye": spaces.Box(0, 255, (2, 3), np.uint8),
    "hand": spaces.Dict(
        {
            "kind": spaces.Discrete(6),
            "count": spaces.Box(-(2**62), 2**62, (2,), np.int64),
        }
    ),
}
ACTION_SPACES: dict[str, spaces.Space[Any]] = {
    "eye": spaces.Discrete(4),
    "hand": spaces.Box(-1.0, 1.0, (2,), np.float32),
}


class TeamEnv:
    """Who is there, and what they see, earn and are told."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "agents_v0",
        "is_parallelizable": True,
    }
    render_mode = None

    def __init__(self, kind: Kind, alike: bool = False) -> None:
        self.kind = kind
        self.possible_agents = [*EYES] if alike else [*EYES, *HANDS]
        self.agents: list[str] = []
        self._state = 0
        self._keepers = {agent: Keeper() for agent in self.possible_agents}
        self._buffers: dict[str, Any] = {}
        self._samplers = {
            agent: deepcopy(self.observation_space(agent))
            for agent in self.possible_agents
        }

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Of one agent."""
        return OBSERVATION_SPACES[agent.partition("_")[0]]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Of one agent."""
        return ACTION_SPACES[agent.partition("_")[0]]

    @property
    def unwrapped(self) -> Any:
        """Itself."""
        return self

    def close(self) -> None:
        """Nothing to close."""

    # One after the other --------------------------------------------------------------

    def _begin(self, seed: int | None, options: Any) -> None:
        self._state = digest(self._state if seed is None else seed, "reset", options)
        some = [a for a in self.possible_agents if self._of(a, "there") % 10 < 7]
        self.agents = some or [self.possible_agents[self._state % 3]]
        for keeper in self._keepers.values():
            keeper.begin()

    def _of(self, agent: str, what: str) -> int:
        """A number that this moment has for an agent."""
        return digest(self._state, agent, what)

    def _look(self, agent: str) -> Any:
        value = sampled(self._samplers[agent], self._of(agent, "obs"))
        if not self.kind.reuses_buffer or isinstance(value, dict):
            return value
        buffer = self._buffers.setdefault(agent, value)
        buffer[...] = value
        return buffer

    def _info_of(self, agent: str) -> dict[str, Any]:
        info = dict(
            STYLES[self.kind.infos](self._of(agent, "info"), self._keepers[agent])
        )
        if agent in EYES and self._of(agent, "mask") % 3 == 0:
            allowed = (np.arange(4) + self._state) % 3 != 0
            info["action_mask"] = allowed
        return info

    def _earned(self, agent: str) -> float:
        return (self._of(agent, "reward") % 2001 - 1000) / 8

    def _fate(self, agent: str, over: bool) -> tuple[bool, bool]:
        number = self._of(agent, "fate")
        return (number % 3 == 0, True) if over else (number % 7 == 0, False)

    @property
    def _over(self) -> bool:
        return self._state // 2001 % max(self.kind.mean_length, 2) == 0


class ParallelAgents(TeamEnv):
    """All act at once."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        self._begin(seed, options)
        seen = {agent: self._look(agent) for agent in self.agents}
        return seen, {agent: self._info_of(agent) for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        """One step of all."""
        assert sorted(actions) == sorted(self.agents), (actions, self.agents)
        self._state = digest(self._state, actions)
        present, over = list(self.agents), self._over
        fates = {agent: self._fate(agent, over) for agent in present}
        rewards = {agent: self._earned(agent) for agent in present}
        if not over:
            away = [a for a in self.possible_agents if a not in present]
            comers = [a for a in away if self._of(a, "comes") % 4 == 0]
            fates |= dict.fromkeys(comers, (False, False))
            present += comers
        for agent in present:
            self._keepers[agent].add(self._of(agent, "keep"))
        seen = {agent: self._look(agent) for agent in present}
        infos = {agent: self._info_of(agent) for agent in present}
        self.agents = [agent for agent in present if not any(fates[agent])]
        terminated = {agent: fates[agent][0] for agent in present}
        truncated = {agent: fates[agent][1] for agent in present}
        return seen, rewards, terminated, truncated, infos


class AgentsInTurns(TeamEnv):
    """One acts at a time; those whose part is over are stepped with None."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        """Begin an episode."""
        self._begin(seed, options)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {agent: self._info_of(agent) for agent in self.agents}
        self._turn = 0
        self.agent_selection: str | None = self.agents[0]

    def agent_iter(self) -> Any:
        """Not needed: whoever steps it knows whose turn it is."""
        raise NotImplementedError("the loops here are their own")

    def observe(self, agent: str) -> Any:
        """What one agent sees."""
        return self._look(agent)

    def step(self, action: Any) -> None:
        """One agent's turn."""
        agent = self.agent_selection
        assert agent is not None
        if self.terminations[agent] or self.truncations[agent]:
            assert action is None
            self._drop(agent)
            return
        self._state = digest(self._state, action)
        self._keepers[agent].add(self._of(agent, "keep"))
        self.rewards = {each: self._earned(each) for each in self.agents}
        over = self._over
        for each in self.agents:
            if over or each == agent:
                fate = self._fate(each, over)
                self.terminations[each], self.truncations[each] = fate
        self.infos = {each: self._info_of(each) for each in self.agents}
        self._turn += 1
        self._select()

    def _drop(self, agent: str) -> None:
        self.agents.remove(agent)
        for record in (self.rewards, self.terminations, self.truncations, self.infos):
            del record[agent]
        self._select()

    def _select(self) -> None:
        """Those whose part is over come first, as in PettingZoo."""
        if not self.agents:
            self.agent_selection = None
            return
        gone = [a for a in self.agents if self.terminations[a] or self.truncations[a]]
        self.agent_selection = (
            gone[0] if gone else self.agents[self._turn % len(self.agents)]
        )
