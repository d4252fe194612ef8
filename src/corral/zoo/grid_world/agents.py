"""The agents: on the ground, and in the air.

An agent defines its actions and its view; the world applies the rules.
"""

from __future__ import annotations

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
    view,
)

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
