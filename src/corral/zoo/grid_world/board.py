"""The board: rectangles of obstacles and clouds, and free cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LONGEST_SIDE = 4
MARGIN = 3
"""Cells around the board, enough for the widest view from its edge."""

Layer = NDArray[np.int8]


class Board:
    """The part of the world that does not move during an episode.

    Layers have a margin, so that a view is one slice for every cell.
    """

    def __init__(
        self, size: int, obstacles: int, clouds: int, rng: np.random.Generator
    ) -> None:
        self.size = size
        self.obstacles = _rectangles(size, obstacles, rng)
        self.clouds = _rectangles(size, clouds, rng)
        self.ground: Layer = np.full((size + 2 * MARGIN,) * 2, OBSTACLE, np.int8)
        """Seen from the ground: obstacles and the border."""
        inside = slice(MARGIN, MARGIN + size)
        self.ground[inside, inside] = self.obstacles
        self.border: Layer = self.ground.copy()
        """Seen from the air: the border only."""
        self.border[inside, inside] = 0
        self.cover = np.zeros(self.ground.shape, np.bool_)
        """Where clouds are."""
        self.cover[inside, inside] = self.clouds

    def blocks(self, cell: Cell) -> bool:
        """Whether the cell has an obstacle."""
        return bool(self.obstacles[cell])

    def free_cells(self, count: int, rng: np.random.Generator) -> list[Cell]:
        """Draw different cells without obstacles."""
        free = np.flatnonzero(~self.obstacles)
        if len(free) < count:  # too few: use cells with obstacles, too
            free = np.arange(self.size**2)
        chosen = rng.choice(free, size=count, replace=False).tolist()
        return [divmod(index, self.size) for index in chosen]


def _rectangles(size: int, count: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Random rectangles with sides of one to four cells."""
    covered = np.zeros((size, size), np.bool_)
    for _ in range(count):
        width, height = rng.integers(1, LONGEST_SIDE + 1, 2).tolist()
        left = int(rng.integers(0, size - width + 1))
        top = int(rng.integers(0, size - height + 1))
        covered[left : left + width, top : top + height] = True
    return covered


def view(layer: NDArray[np.generic], cell: Cell, radius: int) -> NDArray[np.generic]:
    """The square of a layer around a cell."""
    left, top = cell[0] + MARGIN - radius, cell[1] + MARGIN - radius
    side = 2 * radius + 1
    return layer[left : left + side, top : top + side]


EMPTY = 0
OBSTACLE = 1
"""Also beyond the border."""
AGENT = 2
TARGET = 3
CLOUD = 4
"""Hides the cell from agents in the air."""
GOAL = 5
HIDDEN = -10
"""Out of sight at the agent's altitude."""

Cell = tuple[int, int]

MOVES: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1), (0, 0))
"""Right, up, left, down, stay."""
DIRECTIONS = MOVES[:4]


def beside(cell: Cell, move: Cell, size: int) -> Cell:
    """The cell after a move; the border stops it."""
    return (
        min(max(cell[0] + move[0], 0), size - 1),
        min(max(cell[1] + move[1], 0), size - 1),
    )


def distance(one: Cell, other: Cell) -> int:
    """The distance in steps."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


TURNING = 0.3
"""Probability of a turn, per move."""
SIGHT = 1
"""It sees the cells around its own, 3 x 3."""


class Target:
    """Keeps its direction for some steps, and avoids obstacles."""

    def __init__(self, cell: Cell, speed: float = 1.0) -> None:
        self.cell = cell
        self.speed = speed
        """The probability that it moves in a step."""
        self.direction: Cell = (0, 0)

    def move(self, board: Board, rng: np.random.Generator) -> None:
        """Move by one cell, or stay."""
        if rng.random() < self.speed * TURNING:
            self.direction = DIRECTIONS[rng.integers(len(DIRECTIONS))]
        if rng.random() >= self.speed:
            return
        ahead = beside(self.cell, self.direction, board.size)
        if not board.blocks(ahead):
            self.cell = ahead
            return
        for index in rng.permutation(len(DIRECTIONS)).tolist():
            aside = beside(self.cell, DIRECTIONS[index], board.size)
            if not board.blocks(aside):
                self.cell = aside
                return

    def sees(self, cell: Cell) -> bool:
        """Whether the cell is next to it, or the same."""
        away = max(abs(cell[0] - self.cell[0]), abs(cell[1] - self.cell[1]))
        return away <= SIGHT
