"""Which player plays which API; imported one by one, since some need more packages."""

from __future__ import annotations

import importlib

from tests.soak.programs.program import Program

PLAYERS = {
    "pool": "play_pool",
    "batched": "play_pool",
    "make": "play_vector",
    "AsyncVectorEnv": "play_vector",
    "SyncVectorEnv": "play_vector",
    "make_async": "play_async",
    "make_sb3": "play_sb3",
    "SubprocVecEnv": "play_sb3",
    "DummyVecEnv": "play_sb3",
    "make_multi": "play_team",
    "turns": "play_team",
    "shared policy": "play_shared",
    "AsyncPettingZooVecEnv": "play_agilerl",
    "collect": "play_rollouts",
    "run_episodes": "play_rollouts",
    "evaluate": "play_rollouts",
    "map": "play_map",
}


def play(program: Program) -> list[str]:
    """Play a program; returns what was wrong."""
    name = f"tests.soak.programs.{PLAYERS[program.api]}"
    mistakes: list[str] = importlib.import_module(name).play(program)
    return mistakes
