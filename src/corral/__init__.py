"""Corral: many reinforcement-learning environments in parallel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from corral.engine import old_paths

if TYPE_CHECKING:
    from corral import errors
    from corral.api.async_env import make_async
    from corral.api.gymnasium.make import make
    from corral.api.pettingzoo.env import make_multi
    from corral.api.sb3.make import make_sb3
    from corral.api.shared_policy.make import make_shared_policy
    from corral.core import Decision, EnvSpec, Policy, Step
    from corral.engine.adapters.flattened_agents import FlattenedAgents
    from corral.engine.adapters.trials import Trials
    from corral.engine.layout.codec import StandIn, register_codec
    from corral.engine.parallel_map import map
    from corral.engine.pool import Pool
    from corral.engine.pool.groups import take_turns, two_groups
    from corral.engine.worker.context import this_worker
    from corral.rollouts.collector import Collector, collect
    from corral.rollouts.episodic import Episode, run_episodes
    from corral.rollouts.evaluation import Evaluation, evaluate
    from corral.rollouts.normalise import ObsNorm, RewardNorm
    from corral.rollouts.rollout import Rollout
    from corral.rollouts.trajectories import Trajectories
    from corral.tools.doctor.replay import replay

_HOMES = {
    "Collector": "corral.rollouts.collector",
    "Decision": "corral.core",
    "EnvSpec": "corral.core",
    "Episode": "corral.rollouts.episodic",
    "Evaluation": "corral.rollouts.evaluation",
    "FlattenedAgents": "corral.engine.adapters.flattened_agents",
    "ObsNorm": "corral.rollouts.normalise",
    "Policy": "corral.core",
    "Pool": "corral.engine.pool",
    "RewardNorm": "corral.rollouts.normalise",
    "Rollout": "corral.rollouts.rollout",
    "StandIn": "corral.engine.layout.codec",
    "Step": "corral.core",
    "Trajectories": "corral.rollouts.trajectories",
    "Trials": "corral.engine.adapters.trials",
    "collect": "corral.rollouts.collector",
    "evaluate": "corral.rollouts.evaluation",
    "make": "corral.api.gymnasium.make",
    "make_async": "corral.api.async_env",
    "make_multi": "corral.api.pettingzoo.env",
    "make_sb3": "corral.api.sb3.make",
    "make_shared_policy": "corral.api.shared_policy.make",
    "map": "corral.engine.parallel_map",
    "register_codec": "corral.engine.layout.codec",
    "replay": "corral.tools.doctor.replay",
    "run_episodes": "corral.rollouts.episodic",
    "take_turns": "corral.engine.pool.groups",
    "this_worker": "corral.engine.worker.context",
    "two_groups": "corral.engine.pool.groups",
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
    "Trials",
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

old_paths.install()


def __getattr__(name: str) -> Any:
    # Lazy, so that a worker process imports what it runs and nothing else.
    if name in _HOMES:
        found = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = found  # from here on it is found without this function
        return found
    if name in ("doctor", "dropin", "errors", "meta", "testing"):
        return importlib.import_module(f"corral.{name}")
    raise AttributeError(f"module 'corral' has no attribute {name!r}")
