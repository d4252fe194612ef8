"""Corral: many reinforcement-learning environments in parallel."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from corral.engine import old_paths
from corral.engine.lazy_names import lazy

if TYPE_CHECKING:
    from corral import errors
    from corral.api.async_env import make_async
    from corral.api.gymnasium.make import make
    from corral.api.pettingzoo.env import make_multi
    from corral.api.sb3.make import make_sb3
    from corral.api.shared_policy.make import make_shared_policy
    from corral.cluster.cluster import Cluster
    from corral.core import Decision, EnvSpec, Policy, Step
    from corral.engine.adapters.against_random import AgainstRandom
    from corral.engine.adapters.flattened_agents import FlattenedAgents
    from corral.engine.adapters.staying_agents import StayingAgents
    from corral.engine.adapters.trials import Trials
    from corral.engine.crew import Crew
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
    from corral.train.run.load_policy import load_policy

_find = lazy(
    "corral",
    {
        "corral.api.async_env": "make_async",
        "corral.api.gymnasium.make": "make",
        "corral.api.pettingzoo.env": "make_multi",
        "corral.api.sb3.make": "make_sb3",
        "corral.api.shared_policy.make": "make_shared_policy",
        "corral.cluster.cluster": "Cluster",
        "corral.core": "Decision EnvSpec Policy Step",
        "corral.engine.adapters.against_random": "AgainstRandom",
        "corral.engine.adapters.flattened_agents": "FlattenedAgents",
        "corral.engine.adapters.staying_agents": "StayingAgents",
        "corral.engine.adapters.trials": "Trials",
        "corral.engine.crew": "Crew",
        "corral.engine.layout.codec": "StandIn register_codec",
        "corral.engine.parallel_map": "map",
        "corral.engine.pool": "Pool",
        "corral.engine.pool.groups": "take_turns two_groups",
        "corral.engine.worker.context": "this_worker",
        "corral.rollouts.collector": "Collector collect",
        "corral.rollouts.episodic": "Episode run_episodes",
        "corral.rollouts.evaluation": "Evaluation evaluate",
        "corral.rollouts.normalise": "ObsNorm RewardNorm",
        "corral.rollouts.rollout": "Rollout",
        "corral.rollouts.trajectories": "Trajectories",
        "corral.tools.doctor.replay": "replay",
        "corral.train.run.load_policy": "load_policy",
    },
)

__all__ = [
    "AgainstRandom",
    "Cluster",
    "Collector",
    "Crew",
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
    "StayingAgents",
    "Step",
    "Trajectories",
    "Trials",
    "collect",
    "errors",
    "evaluate",
    "load_policy",
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
    if name in ("doctor", "dropin", "errors", "meta", "testing"):
        return importlib.import_module(f"corral.{name}")
    globals()[name] = found = _find(name)  # from here on it is found without this
    return found
