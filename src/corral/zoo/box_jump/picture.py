"""A picture of the boxes, drawn with numpy, and a window that shows it.

Only the window needs a display and pygame.
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError, requires
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


class Window:
    """Shows frames on the screen.

    Raises:
        OptionError: there is no screen.
    """

    def __init__(self, title: str) -> None:
        check_display('render_mode="human"')
        with requires("a window needs pygame ({error}): pip install 'corral[train]'"):
            import pygame
        self._pygame: Any = pygame
        pygame.display.init()
        pygame.display.set_caption(title)
        self._clock = pygame.time.Clock()

    def show(self, frame: Frame, rate: float) -> None:
        """Show a frame, at most `rate` of them per second."""
        pygame = self._pygame
        screen = pygame.display.set_mode((frame.shape[1], frame.shape[0]))
        pygame.surfarray.blit_array(screen, frame.swapaxes(0, 1))
        pygame.display.flip()
        pygame.event.pump()
        self._clock.tick(rate)

    def close(self) -> None:
        """Close the window."""
        self._pygame.display.quit()


def check_display(option: str) -> None:
    """Raise OptionError, which names the option, if a window cannot be opened."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    if sys.platform == "linux" and not any(os.environ.get(name) for name in names):
        raise OptionError(
            f"{option} opens a window, and there is no display here (neither DISPLAY "
            "nor WAYLAND_DISPLAY is set). Frames need none: use render mode rgb_array; "
            "`corral train` records videos with it"
        )
