"""CartPole-v1: a pole on a cart, two actions; the first one to try.

Small rollouts, many epochs, and a discount that looks some fifty steps ahead.
"""

from __future__ import annotations

from pydantic import Field

from corral.learners.ppo import PPOConfig
from corral.train.recipes import config as base
from corral.train.recipes.builder import build

__all__ = ["Config", "build"]


class Config(base.Config):
    """Solves it (475) well within its steps."""

    recipe: str = "cartpole"
    env: str = "CartPole-v1"
    num_envs: int = Field(default=8, ge=1)
    total_steps: int = Field(default=100_000, ge=1)
    ppo: PPOConfig = PPOConfig(
        lr=1e-3,
        lr_schedule="linear",
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        clip_range=0.2,
        clip_schedule="linear",
    )
