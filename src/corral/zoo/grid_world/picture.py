"""A picture of the world, drawn with numpy: needs neither a display nor pygame."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from corral.zoo.grid_world.world import SIGHT, Cell, World

# A cell's side.
PIXELS = 24

PAPER = (250, 249, 246)
LINE = (226, 224, 218)
STONE = (74, 78, 87)
HAZE = (198, 205, 216)
RED = (205, 62, 58)
GREEN = (64, 150, 92)
GROUND_COLOURS = ((38, 105, 184), (232, 152, 40), (20, 138, 138), (142, 98, 66))
AIR_COLOURS = ((128, 82, 172), (205, 88, 142), (88, 88, 200), (70, 70, 70))

Frame = NDArray[np.uint8]


def picture_of(world: World) -> Frame:
    """One frame, height x width x 3."""
    size = world.rules.size
    frame = np.full((size * PIXELS, size * PIXELS, 3), PAPER, np.uint8)
    frame[::PIXELS] = LINE
    frame[:, ::PIXELS] = LINE
    for layer, colour in ((world.board.clouds, HAZE), (world.board.obstacles, STONE)):
        for across, up in np.argwhere(layer).tolist():
            _fill(frame, (across, up), colour)
    if world.goal is not None:
        _fill(frame, world.goal, GREEN, inset=4)
    _outline(frame, world.target.cell, SIGHT, RED)
    _disc(frame, world.target.cell, RED)
    for agent in world.present:
        colours = AIR_COLOURS if agent.flies else GROUND_COLOURS
        colour = colours[agent.number % len(colours)]
        reach = agent.radius if not agent.flies else agent.altitude
        _outline(frame, agent.cell, reach, colour)
        if agent.flies:
            _disc(frame, agent.cell, colour)
        else:
            _fill(frame, agent.cell, colour, inset=5)
    # Cells count to the right and upwards; rows of pixels count downwards.
    return np.ascontiguousarray(frame.swapaxes(0, 1)[::-1])


def _fill(frame: Frame, cell: Cell, colour: tuple[int, ...], inset: int = 1) -> None:
    left, top = cell[0] * PIXELS, cell[1] * PIXELS
    inner = slice(left + inset, left + PIXELS - inset + 1)
    frame[inner, top + inset : top + PIXELS - inset + 1] = colour


def _disc(frame: Frame, cell: Cell, colour: tuple[int, ...]) -> None:
    left, top = cell[0] * PIXELS, cell[1] * PIXELS
    away = np.arange(PIXELS) - (PIXELS - 1) / 2
    inside = away[:, None] ** 2 + away[None, :] ** 2 <= (PIXELS / 3) ** 2
    frame[left : left + PIXELS, top : top + PIXELS][inside] = colour


def _outline(frame: Frame, cell: Cell, radius: int, colour: tuple[int, ...]) -> None:
    """The border of the square around a cell."""
    left = max(cell[0] - radius, 0) * PIXELS
    top = max(cell[1] - radius, 0) * PIXELS
    right = min((cell[0] + radius + 1) * PIXELS, len(frame)) - 1
    bottom = min((cell[1] + radius + 1) * PIXELS, len(frame)) - 1
    frame[left : right + 1, (top, bottom)] = colour
    frame[(left, right), top : bottom + 1] = colour
