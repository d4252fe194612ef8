"""Upkie, a robot on two wheels: its env and its recipe.

Names are imported at first use: the recipe can be read without the simulator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral.zoo.upkie.env import make

__all__ = ["make"]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.env"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
