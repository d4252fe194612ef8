"""Pictures of a simulator, drawn on the CPU: no window, no GPU, no display."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 320, 240
# Degrees, from bottom to top.
VIEW_ANGLE = 50.0


def picture(
    client: Any, eye: tuple[float, ...], target: tuple[float, ...]
) -> NDArray[np.uint8]:
    """What is seen from `eye` in the direction of `target`: height x width x 3."""
    view = client.computeViewMatrix(eye, target, (0.0, 0.0, 1.0))
    lens = client.computeProjectionMatrixFOV(VIEW_ANGLE, WIDTH / HEIGHT, 0.1, 20.0)
    _, _, pixels, _, _ = client.getCameraImage(
        WIDTH, HEIGHT, view, lens, renderer=client.ER_TINY_RENDERER
    )
    return np.asarray(pixels, np.uint8).reshape(HEIGHT, WIDTH, 4)[..., :3]
