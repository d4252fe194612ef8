"""Frames in a window on the screen; it needs a display and pygame."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corral.errors import OptionError, requires

# Variables that name a display, of X, of Wayland, or SDL's own choice.
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")


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
        try:
            pygame.display.init()
        except pygame.error as error:
            raise OptionError(f"a window cannot be opened here: {error}") from None
        # Where no display answers, SDL draws in memory and says nothing.
        unseen = pygame.display.get_driver() in ("offscreen", "dummy")
        if unseen and not os.environ.get("SDL_VIDEODRIVER"):
            pygame.display.quit()
            named = [name for name in DISPLAYS if os.environ.get(name)]
            given = ", ".join(f"{name}={os.environ[name]}" for name in named)
            raise OptionError(
                f"a window cannot be opened here: no display answers at {given}"
            )
        pygame.display.set_caption(title)
        self._clock = pygame.time.Clock()
        self.closed = False

    def show(self, frame: NDArray[np.uint8], rate: float) -> None:
        """Show a frame, at most `rate` of them per second."""
        pygame = self._pygame
        size = (frame.shape[1], frame.shape[0])
        screen = pygame.display.get_surface()
        if screen is None or screen.get_size() != size:
            screen = pygame.display.set_mode(size)
        pygame.surfarray.blit_array(screen, frame[..., :3].swapaxes(0, 1))
        pygame.display.flip()
        asked = pygame.event.get()
        self.closed |= any(event.type == pygame.QUIT for event in asked)
        self._clock.tick(rate)

    def close(self) -> None:
        self._pygame.display.quit()


def check_display(
    option: str,
    variables: Sequence[str] = DISPLAYS,
    instead: str = "use render mode rgb_array; `corral train` records videos with it",
) -> None:
    """Raise OptionError, which names the option, if a window cannot be opened.

    Args:
        option: as the user wrote it.
        variables: of the environment; one of them has to be set.
        instead: what to do without a display.
    """
    if sys.platform == "linux" and not any(map(os.environ.get, variables)):
        raise OptionError(
            f"{option} opens a window, and there is no display here (neither DISPLAY "
            f"nor WAYLAND_DISPLAY is set). Frames need none: {instead}"
        )
