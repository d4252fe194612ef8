"""A game with one player to train or to judge; all others move at random."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.engine.adapters.agents_wrapper import AgentsWrapper
from corral.engine.adapters.pettingzoo import parallel_form
from corral.engine.adapters.roster import as_number
from corral.engine.adapters.team import MASK_KEY, Agent
from corral.engine.adapters.turn_steps import TurnSteps
from corral.errors import OptionError

# The key of the last info: whether the player got more than every other.
WON_KEY = "is_success"
# Episodes that may be over before the player's first turn, in a row.
MAX_STARTS = 100


class AgainstRandom(AgentsWrapper):
    """A PettingZoo env in which one agent plays, and random moves are made for others.

        envs = corral.make_multi(lambda: corral.AgainstRandom(connect_four_v3.env()), 8)

    To the outside it is a ParallelEnv with one agent at a time. Which one is drawn for
    every episode, or is the episode's task: the number of its seat in
    `possible_agents`. Others choose among the actions that their mask allows, with a
    generator of their own, which `reset(seed)` seeds. The episode is over when the
    player's is; its last info has `is_success`: whether it got more reward than every
    other, so a draw is no success.

    Args:
        env: an AECEnv or a ParallelEnv.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(parallel_form(env))
        if len(self.possible_agents) < 2:
            raise OptionError(
                f"{self.env} has {len(self.possible_agents)} agents; random opponents "
                "need two or more"
            )
        self._next_seat: int | None = None
        self._rng = np.random.default_rng()
        self._samplers: dict[Agent, Any] = {}

    def set_task(self, seat: int) -> None:
        """Set the player of the next episode: a number of `possible_agents`."""
        if not 0 <= int(seat) < len(self.possible_agents):
            raise OptionError(
                f"the seat is {seat}; this env has seats 0 to "
                f"{len(self.possible_agents) - 1}"
            )
        self._next_seat = int(seat)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Agent, Any], dict[Agent, Any]]:
        """Start an episode, up to the player's first turn."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        seat, self._next_seat = self._next_seat, None
        for _ in range(MAX_STARTS):
            self._seen, self._infos = self.env.reset(seed=seed, options=options)
            present = list(self.env.agents)
            drawn = int(self._rng.integers(len(present)))
            self.player = present[(drawn if seat is None else seat) % len(present)]
            self._got = dict.fromkeys(self.possible_agents, 0.0)
            if not any(self._until_player()):
                self.agents = [self.player]
                return self._of_player(self._seen), self._of_player(self._infos)
            # Over before the player's first turn: there is nothing to play.
            seed = int(self._rng.integers(2**31))
        raise OptionError(
            f"{self.env} ended {MAX_STARTS} episodes in a row before agent "
            f"{self.player!r} could act"
        )

    def step(self, actions: Mapping[Agent, Any]) -> tuple[dict[Agent, Any], ...]:
        """Step the player, and the others until it is the player's turn again."""
        player, before = self.player, self._got[self.player]
        ends = self._move(actions[player])
        if not any(ends):
            ends = self._until_player()
        info = self._of_player(self._infos)
        if any(ends):
            self.agents = []
            others = [self._got[one] for one in self._got if one != player]
            won = self._got[player] > max(others)
            info = {player: {**info.get(player, {}), WON_KEY: won}}
        return (
            self._of_player(self._seen),
            {player: self._got[player] - before},
            {player: ends[0]},
            {player: ends[1]},
            info,
        )

    def _until_player(self) -> tuple[bool, bool]:
        """Let others move until it is the player's turn; return how it ended, if so."""
        while isinstance(self.env, TurnSteps) and self.env.acting != self.player:
            ends = self._move(None)
            if any(ends):
                return ends
        return False, False

    def _move(self, action: Any) -> tuple[bool, bool]:
        """One step of the env; return whether it terminated or truncated the player."""
        env, player = self.env, self.player
        movers = [env.acting] if isinstance(env, TurnSteps) else env.agents
        actions = {
            agent: action if agent == player else self._random(agent)
            for agent in movers
        }
        self._seen, rewards, terminated, truncated, self._infos = env.step(actions)
        for agent, reward in rewards.items():
            self._got[agent] += as_number(reward, agent)
        return bool(terminated.get(player)), bool(truncated.get(player))

    def _random(self, agent: Agent) -> Any:
        """An allowed action."""
        space = self.env.action_space(agent)
        if not isinstance(space, spaces.Discrete):
            if agent not in self._samplers:
                self._samplers[agent] = copy.deepcopy(space)
            sampler = self._samplers[agent]
            sampler.seed(int(self._rng.integers(2**31)))
            return sampler.sample()
        mask = (self._infos.get(agent) or {}).get(MASK_KEY)
        if mask is None and isinstance(self._seen.get(agent), Mapping):
            mask = self._seen[agent].get(MASK_KEY)
        allowed = np.arange(space.n) if mask is None else np.flatnonzero(mask)
        return int(space.start) + int(self._rng.choice(allowed))

    def _of_player(self, values: Mapping[Agent, Any]) -> dict[Agent, Any]:
        return {agent: values[agent] for agent in (self.player,) if agent in values}
