"""A picture of the boxes, drawn with numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.zoo.box_jump.world import FLOOR, HEIGHT, WIDTH, Rules, World

# To a box side of 1.
PIXELS = 15

PAPER = (250, 249, 246)
GROUND = (74, 78, 87)
RED = (205, 62, 58)
RIM = (38, 42, 50)
COLOURS = ((38, 105, 184), (232, 152, 40), (20, 138, 138), (142, 98, 66))

Frame = NDArray[np.uint8]


def picture_of(world: World, rules: Rules, best: float) -> Frame:
    """One frame, height x width x 3; a line is at the best height of the episode."""
    frame = np.full((int(HEIGHT * PIXELS), int(WIDTH * PIXELS), 3), PAPER, np.uint8)
    frame[int(FLOOR * PIXELS) :] = GROUND
    line = int((FLOOR - (best + 1) * rules.box_height) * PIXELS)
    frame[max(line, 0)] = RED
    for number, body in enumerate(world.bodies):
        _box(frame, body, rules, COLOURS[number % len(COLOURS)])
    return frame


def _box(frame: Frame, body: Any, rules: Rules, colour: tuple[int, ...]) -> None:
    """A rectangle with a rim, turned by the body's angle."""
    across, down = np.meshgrid(
        (np.arange(frame.shape[1]) + 0.5) / PIXELS - body.position.x,
        (np.arange(frame.shape[0]) + 0.5) / PIXELS - body.position.y,
    )
    cosine, sine = math.cos(body.angle), math.sin(body.angle)
    # As seen from the box.
    inside_x = rules.box_width / 2 - abs(across * cosine + down * sine)
    inside_y = rules.box_height / 2 - abs(down * cosine - across * sine)
    depth = np.minimum(inside_x, inside_y)
    frame[depth > 0] = RIM
    frame[depth > 1 / PIXELS] = colour
