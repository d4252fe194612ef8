"""The target: it moves at random, and sees the cells next to it."""

from __future__ import annotations

import numpy as np

from corral.zoo.grid_world.board import Board
from corral.zoo.grid_world.cells import DIRECTIONS, Cell, beside

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
