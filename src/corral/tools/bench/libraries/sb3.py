"""Stable-Baselines3's vector envs."""

from __future__ import annotations

from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from corral.core import Factory
from corral.tools.bench.libraries import Stepped
from corral.tools.bench.messages import Order

KINDS = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}


def build(order: Order, factory: Factory) -> Stepped:
    """Make `DummyVecEnv` or `SubprocVecEnv` as they come, and reset it."""
    envs = KINDS[order.candidate.kind]([factory] * order.num_envs)
    envs.seed(order.seed)
    envs.reset()
    return Stepped(envs.step, envs.close, envs.action_space, envs.observation_space)
