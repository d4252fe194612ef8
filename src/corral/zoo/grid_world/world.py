"""The rules: moves, rewards, and the ends of agents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from corral.zoo.grid_world.agents import Agent, View, see
from corral.zoo.grid_world.board import TARGET, Board, Cell, Target, beside, distance


@dataclass(frozen=True)
class Rules:
    """The parameters of an episode."""

    size: int = 10
    max_steps: int = 250
    obstacles: int = 3
    clouds: int = 3
    target_speed: float = 1.0
    watch: float = 0.5
    """Lambda: the reward is -lambda if seen by the target, 1 - lambda if seeing it."""
    obstacle_penalty: float = -0.05
    step_penalty: float = -0.01
    new_cell: float = 0.025
    """Reward for every cell that an agent enters for the first time."""
    death_on_sight: bool = True
    """Whether an agent that the target sees is out."""
    goal: bool = False
    """Whether there is a goal cell."""
    goal_reward: float = 20.0
    approach: float = 0.05
    """Reward for every step closer to the goal."""


@dataclass
class Outcome:
    """The result of a step for one agent."""

    reward: float
    ended: bool
    info: dict[str, bool]


class World:
    """One episode."""

    def __init__(
        self, rules: Rules, agents: list[Agent], rng: np.random.Generator
    ) -> None:
        self.rules = rules
        self.rng = rng
        self.present = list(agents)
        """The agents that are not out yet."""
        self.steps = 0
        self.board = Board(rules.size, rules.obstacles, rules.clouds, rng)
        cells = self.board.free_cells(len(agents) + 2, rng)
        for agent, cell in zip(agents, cells, strict=False):
            agent.start(cell)
        self.target = Target(cells[-2], rules.target_speed)
        self.goal: Cell | None = cells[-1] if rules.goal else None

    @property
    def late(self) -> bool:
        """Whether the episode has reached its last step."""
        return self.steps >= self.rules.max_steps

    def step(self, actions: dict[str, int]) -> dict[str, Outcome]:
        """Move the agents, compute their results, then move the target."""
        self.steps += 1
        before = {agent.name: agent.cell for agent in self.present}
        hits = {agent.name: self._moved(agent, actions) for agent in self.present}
        outcomes = {
            agent.name: self._settled(agent, before[agent.name], hits[agent.name])
            for agent in self.present
        }
        self.target.move(self.board, self.rng)
        return outcomes

    def leave(self, names: set[str]) -> None:
        """Remove agents from the board."""
        self.present = [agent for agent in self.present if agent.name not in names]

    def look(self, agent: Agent) -> View:
        """The view of an agent now; at higher levels it may miss the target."""
        chance = agent.chance()
        seen = chance >= 1.0 or self.rng.random() < chance
        target = self.target.cell if seen else None
        return see(agent, self.board, self.present, target, self.goal)

    def _moved(self, agent: Agent, actions: dict[str, int]) -> bool:
        """Move an agent; returns whether it hit an obstacle."""
        move = agent.move_for(actions[agent.name])
        ahead = beside(agent.cell, move, self.rules.size)
        if agent.flies:
            agent.cell = ahead
            return False
        if ahead != agent.cell and self.board.blocks(ahead):
            return True
        if not self._taken(ahead, agent):
            agent.cell = ahead
        return False

    def _taken(self, cell: Cell, by: Agent) -> bool:
        """Whether another agent on the ground is in the cell."""
        return any(
            other.cell == cell and not other.flies
            for other in self.present
            if other is not by
        )

    def _settled(self, agent: Agent, before: Cell, hit: bool) -> Outcome:
        rules = self.rules
        reached = agent.cell == self.target.cell
        seen = not reached and self.target.sees(agent.cell)
        detects = not reached and TARGET in self.look(agent)
        reward = rules.obstacle_penalty if hit else 0.0
        if reached or seen:
            reward -= rules.watch
        else:
            reward += 1 - rules.watch if detects else rules.step_penalty
        if agent.cell not in agent.visited:
            agent.visited.add(agent.cell)
            reward += rules.new_cell
        at_goal = agent.cell == self.goal
        if self.goal is not None:
            nearer = distance(before, self.goal) - distance(agent.cell, self.goal)
            reward += rules.approach * nearer + rules.goal_reward * at_goal
        ended = reached or at_goal or (rules.death_on_sight and seen)
        info = {"detects_target": detects, "seen_by_target": seen, "obstacle_hit": hit}
        return Outcome(float(reward), ended, info)
