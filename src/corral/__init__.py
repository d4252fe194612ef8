"""Corral: many reinforcement-learning environments in parallel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corral import errors
    from corral.adapters.flattened import FlattenedAgents
    from corral.core import Decision, EnvSpec, Policy, Step
    from corral.doctor.replay import replay
    from corral.faces.async_env import make_async
    from corral.faces.gymnasium_make import make
    from corral.faces.multi_make import make_multi
    from corral.faces.sb3_make import make_sb3
    from corral.faces.shared_make import make_shared_policy
    from corral.layout.codec import StandIn, register_codec
    from corral.mapping import map
    from corral.pool import Pool
    from corral.pool.groups import take_turns, two_groups
    from corral.rollouts.collector import Collector, collect
    from corral.rollouts.episode import Episode
    from corral.rollouts.episodic import run_episodes
    from corral.rollouts.evaluation import Evaluation, evaluate
    from corral.rollouts.normalise import ObsNorm, RewardNorm
    from corral.rollouts.rollout import Rollout
    from corral.rollouts.trajectories import Trajectories
    from corral.workers.context import this_worker

_HOMES = {
    "Collector": "corral.rollouts.collector",
    "Decision": "corral.core",
    "EnvSpec": "corral.core",
    "Episode": "corral.rollouts.episode",
    "Evaluation": "corral.rollouts.evaluation",
    "FlattenedAgents": "corral.adapters.flattened",
    "ObsNorm": "corral.rollouts.normalise",
    "Policy": "corral.core",
    "Pool": "corral.pool",
    "RewardNorm": "corral.rollouts.normalise",
    "Rollout": "corral.rollouts.rollout",
    "StandIn": "corral.layout.codec",
    "Step": "corral.core",
    "Trajectories": "corral.rollouts.trajectories",
    "collect": "corral.rollouts.collector",
    "evaluate": "corral.rollouts.evaluation",
    "make": "corral.faces.gymnasium_make",
    "make_async": "corral.faces.async_env",
    "make_multi": "corral.faces.multi_make",
    "make_sb3": "corral.faces.sb3_make",
    "make_shared_policy": "corral.faces.shared_make",
    "map": "corral.mapping",
    "register_codec": "corral.layout.codec",
    "replay": "corral.doctor.replay",
    "run_episodes": "corral.rollouts.episodic",
    "take_turns": "corral.pool.groups",
    "this_worker": "corral.workers.context",
    "two_groups": "corral.pool.groups",
}

__all__ = [
    "Collector",
    "Decision",
    "EnvSpec",
    "Episode",
    "Evaluation",
    "FlattenedAgents",
    "ObsNorm",
    "Policy",
    "Pool",
    "RewardNorm",
    "Rollout",
    "StandIn",
    "Step",
    "Trajectories",
    "collect",
    "errors",
    "evaluate",
    "make",
    "make_async",
    "make_multi",
    "make_sb3",
    "make_shared_policy",
    "map",
    "register_codec",
    "replay",
    "run_episodes",
    "take_turns",
    "this_worker",
    "two_groups",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Lazy, so that a worker process imports what it runs and nothing else.
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in ("doctor", "dropin", "errors", "testing"):
        return importlib.import_module(f"corral.{name}")
    raise AttributeError(f"module 'corral' has no attribute {name!r}")
