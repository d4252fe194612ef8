"""The rules: moves, rewards, and the ends of agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.zoo.grid_world.board import (
    AGENT,
    CLOUD,
    GOAL,
    HIDDEN,
    MOVES,
    OBSTACLE,
    TARGET,
    Board,
    Cell,
    Target,
    beside,
    distance,
    view,
)


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


View = NDArray[np.int8]


class Agent:
    """An agent of either kind."""

    radius: ClassVar[int]
    """Cells that it sees in each direction."""
    actions: ClassVar[int]
    lowest: ClassVar[int]
    highest: ClassVar[int]
    """The smallest and largest value in its view, without goals."""
    flies: ClassVar[bool]
    altitude = 0
    """The flight level, 1 to 3; 0 on the ground."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        """Its index among agents of its kind."""
        self.cell: Cell = (0, 0)
        self.visited: set[Cell] = set()

    def start(self, cell: Cell) -> None:
        """Start an episode in a cell."""
        self.cell = cell
        self.visited = {cell}

    def move_for(self, action: int) -> Cell:
        """The move of an action."""
        return MOVES[action]

    def observation_parts(self, size: int, goal: bool) -> dict[str, Any]:
        """The spaces of its observation, by name."""
        side = 2 * self.radius + 1
        most = GOAL if goal else self.highest
        return {
            "agent": spaces.Box(0, size - 1, (2,), np.int32),
            "obstacles_fov": spaces.Box(self.lowest, most, (side, side), np.int8),
        }

    def observed(self, seen: View) -> dict[str, Any]:
        """The observation, without target and goal."""
        return {"agent": np.array(self.cell, np.int32), "obstacles_fov": seen}

    def chance(self) -> float:
        """The probability that it sees a target in view."""
        return 1.0

    def background(self, board: Board) -> View:
        """Its view of the board without agents."""
        raise NotImplementedError

    def finished(self, seen: View, board: Board) -> View:
        """Its final view, after clouds and altitude."""
        return seen

    def place(self, seen: View, cell: Cell, code: int) -> None:
        """Put a code into its view, if the cell is within."""
        across, down = cell[0] - self.cell[0], cell[1] - self.cell[1]
        if max(abs(across), abs(down)) <= self.radius:
            seen[across + self.radius, down + self.radius] = code


class GroundAgent(Agent):
    """Walks and sees 5 x 5 cells; actions: four directions, or stay."""

    radius = 2
    actions = len(MOVES)
    lowest = 0
    highest = TARGET
    flies = False

    def background(self, board: Board) -> View:
        """Obstacles and the border."""
        return np.array(view(board.ground, self.cell, self.radius), np.int8)


class AirAgent(Agent):
    """Flies over obstacles at one of three levels and sees up to 7 x 7 cells.

    At level 1 it sees the inner 3 x 3 cells and always detects a target there; at level
    3 it sees all cells, but detects a target with probability 1/3. Actions: the moves,
    then up, hold, down.
    """

    radius = 3
    actions = len(MOVES) + 3
    lowest = HIDDEN
    highest = CLOUD
    flies = True
    levels = 3
    chances = (1.0, 0.66, 0.33)
    """The probability of seeing a target, by level."""

    def start(self, cell: Cell) -> None:
        """Start an episode, at the lowest level."""
        super().start(cell)
        self.altitude = 1

    def move_for(self, action: int) -> Cell:
        """Move, or climb, hold or sink."""
        if action < len(MOVES):
            return MOVES[action]
        change = (1, 0, -1)[action - len(MOVES)]
        self.altitude = min(max(self.altitude + change, 1), self.levels)
        return (0, 0)

    def observation_parts(self, size: int, goal: bool) -> dict[str, Any]:
        """With the flight level, which is never 0."""
        parts = super().observation_parts(size, goal)
        return {**parts, "flight_level": spaces.Discrete(self.levels + 1)}

    def observed(self, seen: View) -> dict[str, Any]:
        """With the flight level."""
        return {**super().observed(seen), "flight_level": np.int64(self.altitude)}

    def chance(self) -> float:
        """Falls with the flight level."""
        return self.chances[self.altitude - 1]

    def background(self, board: Board) -> View:
        """The border; obstacles are below."""
        return np.array(view(board.border, self.cell, self.radius), np.int8)

    def finished(self, seen: View, board: Board) -> View:
        """Clouds hide agents; cells out of sight are HIDDEN."""
        below = (seen != OBSTACLE) & (seen != TARGET) & (seen != GOAL)
        seen[np.asarray(view(board.cover, self.cell, self.radius)) & below] = CLOUD
        rings = self.levels - self.altitude
        if rings:
            seen[:rings] = seen[-rings:] = HIDDEN
            seen[:, :rings] = seen[:, -rings:] = HIDDEN
        return seen


def see(
    agent: Agent,
    board: Board,
    others: list[Agent],
    target: Cell | None,
    goal: Cell | None,
) -> View:
    """The view of an agent; target is None if it does not detect it."""
    seen = agent.background(board)
    for other in others:
        if other is not agent and other.altitude <= agent.altitude:
            agent.place(seen, other.cell, AGENT)
    if goal is not None:
        agent.place(seen, goal, GOAL)
    if target is not None:
        agent.place(seen, target, TARGET)
    return agent.finished(seen, board)
