"""The agents: those on the ground, and those in the air.

An agent says what it can do and see; the world decides what comes of it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from corral.zoo.grid_world.board import Board, view
from corral.zoo.grid_world.cells import (
    AGENT,
    CLOUD,
    GOAL,
    HIDDEN,
    MOVES,
    OBSTACLE,
    TARGET,
    Cell,
)

View = NDArray[np.int8]


class Agent:
    """What both kinds have in common."""

    radius: ClassVar[int]
    """How far its view reaches in each direction."""
    actions: ClassVar[int]
    lowest: ClassVar[int]
    highest: ClassVar[int]
    """The least and the greatest value in its view, goals left out."""
    flies: ClassVar[bool]

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        """Among its kind."""
        self.cell: Cell = (0, 0)
        self.visited: set[Cell] = set()

    @property
    def altitude(self) -> int:
        """0 on the ground."""
        return 0

    def start(self, cell: Cell) -> None:
        """Begin an episode."""
        self.cell = cell
        self.visited = {cell}

    def move_for(self, action: int) -> Cell:
        """Where the action would take it."""
        return MOVES[action]

    def observation_parts(self, size: int, goal: bool) -> dict[str, Any]:
        """The spaces of what it observes, by name."""
        side = 2 * self.radius + 1
        most = GOAL if goal else self.highest
        return {
            "agent": spaces.Box(0, size - 1, (2,), np.int32),
            "obstacles_fov": spaces.Box(self.lowest, most, (side, side), np.int8),
        }

    def observed(self, seen: View) -> dict[str, Any]:
        """The parts of an observation that are its own."""
        return {"agent": np.array(self.cell, np.int32), "obstacles_fov": seen}

    def chance(self) -> float:
        """How surely it sees a target that is in view."""
        return 1.0

    def background(self, board: Board) -> View:
        """What it sees when nobody else is there."""
        raise NotImplementedError

    def finished(self, seen: View, board: Board) -> View:
        """What is left of its view in the end."""
        return seen

    def place(self, seen: View, cell: Cell, code: int) -> None:
        """Put something into its view, if it is within."""
        across = cell[0] - self.cell[0] + self.radius
        down = cell[1] - self.cell[1] + self.radius
        side = 2 * self.radius + 1
        if 0 <= across < side and 0 <= down < side:
            seen[across, down] = code


class GroundAgent(Agent):
    """Goes on foot, sees 5 x 5 cells: a move in four directions, or none."""

    radius = 2
    actions = len(MOVES)
    lowest = 0
    highest = TARGET
    flies = False

    def background(self, board: Board) -> View:
        """Obstacles, and the border."""
        return np.array(view(board.ground, self.cell, self.radius), np.int8)


class AirAgent(Agent):
    """Flies over obstacles at one of three levels and sees up to 7 x 7 cells.

    At level 1 it sees the innermost 3 x 3 and misses nothing there; at level 3 it sees
    all of them, and a target only in one of three looks. Moves, then up, hold, down.
    """

    radius = 3
    actions = len(MOVES) + 3
    lowest = HIDDEN
    highest = CLOUD
    flies = True
    levels = 3
    chances = (1.0, 0.66, 0.33)
    """How surely it sees a target, by level."""

    level = 1

    @property
    def altitude(self) -> int:
        """The flight level, 1 to 3."""
        return self.level

    def start(self, cell: Cell) -> None:
        """Begin an episode, at the lowest level."""
        super().start(cell)
        self.level = 1

    def move_for(self, action: int) -> Cell:
        """Climb, hold or sink, or move like anybody else."""
        if action < len(MOVES):
            return MOVES[action]
        change = (1, 0, -1)[action - len(MOVES)]
        self.level = min(max(self.level + change, 1), self.levels)
        return (0, 0)

    def observation_parts(self, size: int, goal: bool) -> dict[str, Any]:
        """The flight level as well; it is never 0."""
        parts = super().observation_parts(size, goal)
        return {**parts, "flight_level": spaces.Discrete(self.levels + 1)}

    def observed(self, seen: View) -> dict[str, Any]:
        """The flight level as well."""
        return {**super().observed(seen), "flight_level": np.int64(self.level)}

    def chance(self) -> float:
        """The less the higher it flies."""
        return self.chances[self.level - 1]

    def background(self, board: Board) -> View:
        """The border; obstacles are far below."""
        return np.array(view(board.border, self.cell, self.radius), np.int8)

    def finished(self, seen: View, board: Board) -> View:
        """Clouds hide agents, and the rings that are out of sight are masked."""
        below = (seen != OBSTACLE) & (seen != TARGET) & (seen != GOAL)
        seen[np.asarray(view(board.cover, self.cell, self.radius)) & below] = CLOUD
        rings = self.levels - self.level
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
    """What an agent sees; a target that it misses is not given."""
    seen = agent.background(board)
    for other in others:
        if other is not agent and other.altitude <= agent.altitude:
            agent.place(seen, other.cell, AGENT)
    if goal is not None:
        agent.place(seen, goal, GOAL)
    if target is not None:
        agent.place(seen, target, TARGET)
    return agent.finished(seen, board)
