"""How each library steps many envs; imported in the candidate's own process only.

`builder_of(library)` returns `build(order, factory) -> BuiltEnvs`, which makes the envs
and resets them. The library itself is imported before that, so that start-up times do
not include imports.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gymnasium import Space

from corral.core import Factory
from corral.engine.executors.assign import Placement
from corral.engine.pool import Stats
from corral.tools.bench.candidates import BuildOrder


@dataclass(frozen=True, slots=True)
class BuiltEnvs:
    """Envs that were reset and can be stepped."""

    step: Callable[[Any], Any]
    """Takes a batch of actions."""
    close: Callable[[], None]
    action_space: Space[Any]
    """Of one env."""
    observation_space: Space[Any] | None = None
    episodes: Callable[[], int] | None = None
    """How many have ended so far, where they are counted."""
    stats: Callable[[], Stats] | None = None
    layout: Placement | None = None
    agents: str = ""
    """How several agents act, as in `BuildOrder`."""
    groups_text: tuple[str, str] | None = None
    """Observations and actions in words, where the spaces are not the env's own."""


Build = Callable[[BuildOrder, Factory], BuiltEnvs]


def builder_of(library: str) -> Build:
    """Import the library; returns its `build`."""
    home = {"loop": "bare", "corral": "ours"}.get(library, "peers")
    module = importlib.import_module(f"corral.tools.bench.libraries.{home}")
    if home == "peers":
        for name in module.IMPORTS[library]:
            importlib.import_module(name)
    build: Build = getattr(module, library if home == "peers" else "build")
    return build
