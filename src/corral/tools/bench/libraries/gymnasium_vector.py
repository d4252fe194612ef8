"""Gymnasium's own vector envs."""

from __future__ import annotations

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from corral.core import Factory
from corral.tools.bench.libraries import BuiltEnvs
from corral.tools.bench.messages import BuildOrder

KINDS: dict[str, type[AsyncVectorEnv | SyncVectorEnv]] = {
    "sync": SyncVectorEnv,
    "async": AsyncVectorEnv,
}


def build(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Make `SyncVectorEnv` or `AsyncVectorEnv` as they come, and reset it."""
    return stepped(KINDS[order.candidate.kind]([factory] * order.num_envs), order.seed)


def stepped(envs: VectorEnv, seed: int) -> BuiltEnvs:
    """Any of Gymnasium's vector envs, reset."""
    envs.reset(seed=seed)
    return BuiltEnvs(
        envs.step,
        envs.close,
        envs.single_action_space,
        envs.single_observation_space,
    )
