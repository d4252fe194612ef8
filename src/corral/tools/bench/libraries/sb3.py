"""Stable-Baselines3's vector envs."""

from __future__ import annotations

from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from corral.core import Factory
from corral.tools.bench.libraries import BuiltEnvs
from corral.tools.bench.messages import BuildOrder

KINDS = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}


def build(order: BuildOrder, factory: Factory) -> BuiltEnvs:
    """Make `DummyVecEnv` or `SubprocVecEnv` as they come, and reset it."""
    envs = KINDS[order.candidate.kind]([factory] * order.num_envs)
    envs.seed(order.seed)
    envs.reset()
    return BuiltEnvs(envs.step, envs.close, envs.action_space, envs.observation_space)
