"""Upkie, a robot on two wheels: its env and its recipe.

Names are imported at first use: the recipe can be read without the simulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corral.engine.lazy_names import lazy

if TYPE_CHECKING:
    from corral.zoo.upkie.env import make

__all__ = ["make"]

__getattr__ = lazy(__name__, {".env": "make"})


def __dir__() -> list[str]:
    return [*globals(), *__all__]
