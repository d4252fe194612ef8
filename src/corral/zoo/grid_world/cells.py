"""What can be seen in a cell, and where one gets by moving."""

from __future__ import annotations

EMPTY = 0
OBSTACLE = 1
"""Or what lies beyond the border."""
AGENT = 2
TARGET = 3
CLOUD = 4
"""A visual obstacle: hides what is below from those who fly."""
GOAL = 5
HIDDEN = -10
"""Beyond what an agent in the air sees from its altitude."""

Cell = tuple[int, int]

MOVES: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1), (0, 0))
"""Right, up, left, down, stay."""
DIRECTIONS = MOVES[:4]


def beside(cell: Cell, move: Cell, size: int) -> Cell:
    """Where a move leads; at the border, nowhere."""
    return (
        min(max(cell[0] + move[0], 0), size - 1),
        min(max(cell[1] + move[1], 0), size - 1),
    )


def distance(one: Cell, other: Cell) -> int:
    """In steps."""
    return abs(one[0] - other[0]) + abs(one[1] - other[1])
