"""Codes of cells in a view, and moves between cells."""

from __future__ import annotations

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
