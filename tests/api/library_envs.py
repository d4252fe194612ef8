"""Envs of libraries, imported where they are built."""

from __future__ import annotations

import importlib
from typing import Any


def knights(**options: Any) -> Any:
    module = "pettingzoo.butterfly.knights_archers_zombies.knights_archers_zombies"
    return importlib.import_module(module).parallel_env(max_cycles=4, **options)


def spread() -> Any:
    return importlib.import_module("mpe2.simple_spread_v3").parallel_env(max_cycles=6)


def tag() -> Any:
    return importlib.import_module("mpe2.simple_tag_v3").parallel_env(max_cycles=6)


def speaker() -> Any:
    module = importlib.import_module("mpe2.simple_speaker_listener_v4")
    return module.parallel_env(max_cycles=6, continuous_actions=True)


def rps() -> Any:
    module = importlib.import_module("pettingzoo.classic.rps.rps")
    return module.parallel_env(max_cycles=5)


def rps_in_turns() -> Any:
    return importlib.import_module("pettingzoo.classic.rps.rps").env(max_cycles=5)


def tictactoe() -> Any:
    return importlib.import_module("pettingzoo.classic.tictactoe.tictactoe").env()


def connect_four() -> Any:
    return importlib.import_module("pettingzoo.classic.connect_four.connect_four").env()


def grid_world() -> Any:
    module = importlib.import_module("corral.zoo.grid_world")
    return module.parallel_env(size=6, max_steps=12, death_on_sight=True)


def grid_world_in_turns() -> Any:
    module = importlib.import_module("corral.zoo.grid_world")
    return module.env(size=6, max_steps=8, death_on_sight=True)


def box_jump() -> Any:
    module = importlib.import_module("corral.zoo.box_jump")
    return module.parallel_env(num_boxes=3, max_timestep=10, include_time=True)
