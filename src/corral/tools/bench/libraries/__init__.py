"""How each library steps many envs: one file each, imported in its own process only.

A file has `build(order, factory) -> BuiltEnvs`, which makes the envs and resets them.
What it imports at its top is there before the clock of the start-up runs.
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
from corral.tools.bench.messages import BuildOrder

HOMES = {
    "loop": "corral.tools.bench.libraries.bare",
    "corral": "corral.tools.bench.libraries.ours",
    "gymnasium": "corral.tools.bench.libraries.gymnasium_vector",
    "sb3": "corral.tools.bench.libraries.sb3",
    "agilerl": "corral.tools.bench.libraries.agilerl_vector",
    "supersuit": "corral.tools.bench.libraries.supersuit_vector",
}


@dataclass(frozen=True, slots=True)
class BuiltEnvs:
    """Envs that were reset and can be stepped, whoever runs them."""

    step: Callable[[Any], Any]
    """Takes a batch of actions."""
    close: Callable[[], None]
    action_space: Space[Any]
    """Of one env."""
    observation_space: Space[Any] | None = None
    episodes: Callable[[], int] | None = None
    """How many have ended so far, where somebody counts."""
    stats: Callable[[], Stats] | None = None
    layout: Placement | None = None
    agents: str = ""
    """How several agents act, as in `BuildOrder`."""
    groups_text: tuple[str, str] | None = None
    """Observations and actions in words, where the spaces are not the env's own."""


Build = Callable[[BuildOrder, Factory], BuiltEnvs]


def builder_of(library: str) -> Build:
    """Import what the library needs; returns its `build`."""
    build: Build = importlib.import_module(HOMES[library]).build
    return build
