"""The board: rectangles of obstacles and clouds, and free cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from corral.zoo.grid_world.cells import OBSTACLE, Cell

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
