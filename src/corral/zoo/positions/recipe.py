"""CartPole-v1 without velocities: solved by whoever remembers the last observation."""

from __future__ import annotations

from pydantic import Field

from corral.learners.ppo import PPOConfig
from corral.train.recipes import config as base
from corral.train.recipes.builder import build

__all__ = ["Config", "build"]


class Config(base.Config):
    """A GRU; the same with `ppo.memory: none` cannot do it."""

    recipe: str = "memory"
    env: str = "corral.zoo.positions:make"
    num_envs: int = Field(default=16, ge=1)
    total_steps: int = Field(default=300_000, ge=1)
    ppo: PPOConfig = PPOConfig(
        lr=1e-3,
        lr_schedule="linear",
        n_steps=32,
        batch_size=128,
        n_epochs=10,
        gamma=0.98,
        gae_lambda=0.9,
        memory="gru",
        memory_size=64,
    )
